"""`bench verify --against`: a group's answers on standard input, beside those that another group saved."""
import json
import sys

from bench.ends import CLIENT_ERROR, USAGE, Failure, say
from bench.flags import Flags
from bench.report import json_text
from bench.text import placement, table

PROMISED = (1, 2, 4, 8)  # ranks with equal shares whose bits are equal


def run(_program, args):
    flags = Flags("verify-answers", "", "")
    flags.add_argument("--against", required=True)
    flags.add_argument("--json", action="store_true")
    options = flags.parse(args)
    group = json.load(sys.stdin)
    try:
        with open(options.against, encoding="utf-8") as f:
            reference = json.load(f)
        comparison = compare(reference, group)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"--against {options.against}: it is not what 'bench verify --save' writes: {error!r}",
                      USAGE) from error
    say(json_text(comparison) if options.json else comparison_text(comparison))
    if not comparison["ok"]:
        raise Failure(f"answers of {group['tensor_parallel_size']} ranks differ from those of "
                      f"{reference['tensor_parallel_size']}", CLIENT_ERROR)
    return 0


def compare(reference, group):
    """Both as `bench verify --save` writes them, of one subject; `group` with its hosts."""
    if len(reference["answers"]) != len(group["answers"]):
        raise Failure(f"there are {len(reference['answers'])} saved answers and {len(group['answers'])} of this group",
                      USAGE)
    promised = all(side["equal_shares"] and side["tensor_parallel_size"] in PROMISED for side in (reference, group))
    answers = []
    for a, b in zip(reference["answers"], group["answers"]):
        answers.append({"input_len": b["input_len"], "sampled": b["sampled"],
                        "first_difference": first_difference(a["tokens"], b["tokens"]),
                        "equal_logprobs": a["logprob_bits"] == b["logprob_bits"],
                        "equal_logits": a["logits_sha256"] == b["logits_sha256"]})
    differing_answers = sum(one["first_difference"] >= 0 for one in answers)
    differing_bits = sum(not (one["equal_logprobs"] and one["equal_logits"]) for one in answers)
    return {"bench": "verify", "ok": differing_answers == 0 and (not promised or differing_bits == 0),
            "tensor_parallel_size": group["tensor_parallel_size"], "hosts": group["hosts"],
            "reference_tensor_parallel_size": reference["tensor_parallel_size"],
            "tokens": sum(len(one["tokens"]) for one in group["answers"]), "differing_answers": differing_answers,
            "differing_bits": differing_bits, "bits_promised": promised, "answers": answers}


def first_difference(a, b):
    """The index of the first token that differs; -1: none."""
    if a == b:
        return -1
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def comparison_text(comparison):
    """One line when all is equal, else a row per answer that differs."""
    ranks, answers = comparison["tensor_parallel_size"], comparison["answers"]
    differing, bits = comparison["differing_answers"], comparison["differing_bits"]
    promised = comparison["bits_promised"]
    tokens_text = f"{differing} answers differ in their tokens" if differing else "all tokens equal"
    bits_text = (f"{bits} answers differ in bits of their logits"
                 + ("" if promised else ", which is not promised for these sizes")
                 if bits else "all logits equal, bit by bit")
    text = (f"{ranks} rank{'' if ranks == 1 else 's'} against {comparison['reference_tensor_parallel_size']} "
            f"({placement(comparison['hosts'])}): {len(answers)} answers, {comparison['tokens']} tokens: {tokens_text}; "
            f"{bits_text}\n")
    if comparison["ok"]:
        return text
    rows = [["answer", "input", "sampled", "tokens", "log probabilities", "logits"]]
    for i, one in enumerate(answers):
        at = one["first_difference"]
        if at >= 0 or (promised and not (one["equal_logprobs"] and one["equal_logits"])):
            rows.append([str(i), str(one["input_len"]), "yes" if one["sampled"] else "no",
                         "equal" if at < 0 else f"differ at {at}",
                         *("equal" if one[key] else "differ" for key in ("equal_logprobs", "equal_logits"))])
    return text + table(rows)
