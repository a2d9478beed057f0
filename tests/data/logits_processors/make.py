#!/usr/bin/env python3
"""Writes golden.json: what transformers' logits processors, and vLLM's penalties, make of random logits.

Needs torch and transformers (5.23 when the file was made). Floats are written as the hexadecimal of
their 32 bits, so that tests can compare bits.
"""
import json
import pathlib
import struct

import torch
from transformers.generation.logits_process import (NoBadWordsLogitsProcessor,
                                                    RepetitionPenaltyLogitsProcessor,
                                                    SequenceBiasLogitsProcessor)

VOCAB = 48


def hex_of(row):
    return "".join(struct.pack(">f", value).hex() for value in row.tolist())


def repetition(scores, ids, case):
    if case.get("repetition_penalty", 1.0) == 1.0:
        return scores
    return RepetitionPenaltyLogitsProcessor(case["repetition_penalty"])(ids, scores)


def openai_penalties(scores, generated, case):
    """Frequency and presence, over generated tokens alone: mu[j] - c[j] * f - (c[j] > 0) * p."""
    counts = torch.bincount(generated, minlength=VOCAB).to(torch.float32)
    scores = scores - torch.tensor(case.get("frequency_penalty", 0.0)) * counts
    return scores - torch.tensor(case.get("presence_penalty", 0.0)) * (counts > 0).float()


def answer(case, scores):
    prompt = torch.tensor(case["prompt"])
    generated = torch.tensor(case["generated"], dtype=torch.long)
    ids = torch.cat([prompt, generated])[None]
    if "allowed_token_ids" in case:
        mask = torch.ones(VOCAB, dtype=torch.bool)
        mask[case["allowed_token_ids"]] = False
        scores = scores.masked_fill(mask, -float("inf"))
    if "bad_words" in case:  # over generated tokens alone, as vLLM has it
        words = NoBadWordsLogitsProcessor(case["bad_words"], eos_token_id=torch.tensor([VOCAB - 1]))
        scores = words(generated[None], scores)
    if "logit_bias" in case:
        bias = {(int(id),): value for id, value in case["logit_bias"].items()}
        scores = SequenceBiasLogitsProcessor(bias)(ids, scores)
    scores = repetition(scores, ids, case)
    return openai_penalties(scores[0], generated, case)


def main():
    random = torch.Generator().manual_seed(20)

    def ids(count):
        return torch.randint(0, VOCAB - 1, (count,), generator=random).tolist()

    history = {"prompt": ids(12), "generated": ids(20)}
    kinds = [{"repetition_penalty": 1.1}, {"repetition_penalty": 0.7}, {"presence_penalty": 0.6},
             {"frequency_penalty": 0.4}, {"frequency_penalty": -1.5, "presence_penalty": -0.3},
             {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 2.0},
             {"logit_bias": {"0": 2.5, "7": -100.0, "46": 0.125}},
             {"allowed_token_ids": [0, 3, 4, 31, 47]},
             {"bad_words": [[5], [history["generated"][-1], 9], [history["generated"][-1] + 1, 10],
                            history["generated"][-3:] + [11]]}]
    kinds.append({key: value for kind in kinds for key, value in kind.items()})
    cases = [{**history, **kind} for kind in kinds]
    cases += [{"prompt": ids(3), "generated": [], **kinds[-1]},
              {"prompt": ids(1), "generated": ids(1) * 5, **kinds[5]}]
    for case in cases:
        scores = torch.randn((1, VOCAB), generator=random) * 4
        case["logits"] = hex_of(scores[0])
        case["want"] = hex_of(answer(case, scores))
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = f'{{"vocab_size": {VOCAB}, "cases": [\n{lines}\n]}}\n'
    pathlib.Path(__file__).with_name("golden.json").write_text(text)


if __name__ == "__main__":
    main()
