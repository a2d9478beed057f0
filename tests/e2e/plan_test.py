"""The plan is exact: `plan` succeeds exactly if `serve` starts, both report the same bytes, and a
remedy, applied, starts. Random caps and flags from a fixed seed."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from sample_model import with_mtp_layer  # noqa: E402

MIB = 1 << 20
COUNT = int(os.environ.get("BULKHEAD_TEST_PLANS", "6"))
KV_RULES = ("--gpu-memory-utilization", "--cache-max-entry-count", "--kv-cache-bytes")
SAME_OF_GROUP = ("fits", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "block_size",
                 "num_kv_blocks", "kv_tokens", "binding")
SAME_OF_RANK = ("rank", "total_bytes", "reserve_bytes", "required_bytes", "free_bytes", "stranded_bytes",
                "kv_bytes_per_token", "arenas", "draft_model")


def words(flags):
    return [str(word) for pair in flags.items() for word in pair]


def plan(flags, ranks, model=group.MODEL):
    done = subprocess.run(
        [group.BINARY, "plan", "--model", model, "--tensor-parallel-size", str(ranks), "--json", *words(flags)],
        capture_output=True, text=True, timeout=group.LIMIT_S)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


class PlanTest(unittest.TestCase):
    def draw(self, rng):
        low, high = 24 * MIB, 110 * MIB
        caps = [int(low * (high / low) ** rng.random()) for _ in range(group.RANKS)]
        flags = {"--device-memory": ",".join(f"{rank}={cap}" for rank, cap in enumerate(caps))}
        for flag, values in (("--max-model-len", [64, 512, 2048]), ("--max-num-seqs", [1, 16, 64]),
                             ("--max-num-batched-tokens", [64, 2048]), ("--kv-cache-dtype", ["f32", "bf16"]),
                             ("--cache-max-entry-count", [0.3, 0.8, 30]), ("--weight-dtype", ["int8", "int4"])):
            if rng.random() < 0.5:
                flags[flag] = rng.choice(values)
        if rng.random() < 0.4:
            flags["--speculative-config"] = json.dumps({"model": group.MODEL, "num_speculative_tokens": 4})
        if group.RANKS == 2 and rng.random() < 0.5:
            flags["--tp-shares"] = rng.choice(["auto", "2,1"])
        return flags

    def serve(self, flags, report):
        """Starts a group and drains it when it serves; returns its exit code and report."""
        with subprocess.Popen(group.serve_command("--port", 0, "--report", report, *words(flags)),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                              env=group.ENVIRONMENT) as process:
            for line in process.stdout:
                if line.startswith("READY "):
                    process.send_signal(signal.SIGTERM if group.RANKS == 1 else signal.SIGUSR1)
            code = process.wait(group.LIMIT_S)
        with open(report, encoding="utf-8") as file:
            return code, json.load(file)

    def test_serve_starts_exactly_when_the_plan_says_so_and_both_agree_to_the_byte(self):
        rng = random.Random(11 + group.RANKS)
        codes = set()
        with tempfile.TemporaryDirectory() as folder:
            for i in range(COUNT):
                flags = self.draw(rng)
                code, planned, errors = plan(flags, group.RANKS)
                self.assertIn(code, (0, 4), errors)
                served_code, served = self.serve(flags, os.path.join(folder, f"{i}.json"))
                self.assertEqual(served_code, code, flags)
                codes.add(code)
                self.expect_same_bytes(planned, served, flags)
        self.assertEqual(codes, {0, 4}, "the draws met one answer only")

    def expect_same_bytes(self, planned, served, flags):
        for key in SAME_OF_GROUP:
            self.assertEqual(served[key], planned[key], (key, flags))
        for ours, theirs in zip(planned["ranks"], served["ranks"]):
            for key in SAME_OF_RANK:
                self.assertEqual(theirs[key], ours[key], (key, flags))
        self.assertEqual(served["device_allocations_after_ready"], 0)

    def test_an_mtp_layer_is_planned_to_the_byte(self):
        flags = {"--device-memory": "110MiB", "--max-num-batched-tokens": 512, "--weight-dtype": "int8",
                 "--speculative-config": json.dumps({"method": "mtp", "num_speculative_tokens": 2})}
        with tempfile.TemporaryDirectory() as folder:
            model = with_mtp_layer(os.path.join(folder, "model"))
            code, planned, errors = plan(flags, group.RANKS, model)
            self.assertEqual(code, 0, errors)
            self.assertGreater(planned["ranks"][0]["arenas"]["draft_model"], 0)
            with unittest.mock.patch.object(group, "MODEL", model):
                code, served = self.serve(flags, os.path.join(folder, "report.json"))
            self.assertEqual(code, 0)
        self.expect_same_bytes(planned, served, flags)

    def test_a_draft_model_with_states_is_planned_to_the_byte(self):
        models = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "models")
        model, draft = (os.path.join(models, name) for name in ("llama3_gqa_bf16", "qwen3_next_bf16"))
        flags = {"--device-memory": "110MiB", "--max-num-seqs": 4, "--speculative-config": json.dumps({"model": draft, "num_speculative_tokens": 4})}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(group, "MODEL", model):
            code, planned, errors = plan(flags, group.RANKS, model)
            self.assertEqual(code, 0, errors)
            self.assertGreater(planned["ranks"][0]["draft_model"]["state"], 0)
            code, served = self.serve(flags, os.path.join(folder, "report.json"))
        self.assertEqual(code, 0)
        self.expect_same_bytes(planned, served, flags)

    def test_inputs_in_bf16_and_tiles_are_planned_to_the_byte(self):
        for dtypes in ({"--activation-dtype": "bf16-amx", "--cpu-isa": "plain_amx"}, {"--activation-dtype": "bf16"},
                       {"--attention-dtype": "bf16", "--weight-dtype": "int8"}):
            flags = {"--device-memory": "110MiB", "--kv-cache-dtype": "bf16", **dtypes}
            with self.subTest(**flags), tempfile.TemporaryDirectory() as folder:
                code, planned, errors = plan(flags, group.RANKS)
                self.assertEqual(code, 0, errors)
                code, served = self.serve(flags, os.path.join(folder, "report.json"))
                self.assertEqual(code, 0)
                self.expect_same_bytes(planned, served, flags)

    def test_drafts_are_planned_for_a_gpu(self):
        arenas = []
        for config in (None, {"method": "ngram", "num_speculative_tokens": 5}, {"model": group.MODEL, "num_speculative_tokens": 5}):
            code, planned, errors = plan({"--gpu": "h100", "--speculative-config": json.dumps(config)}, group.RANKS)
            self.assertEqual(code, 0, errors)
            arenas.append(planned["ranks"][0]["arenas"])
        plain, lookup, draft = arenas
        self.assertGreater(lookup["logits"], plain["logits"])  # parameters and ids of rows behind drafts
        self.assertEqual({**lookup, "logits": 0, "kv": 0}, {**plain, "logits": 0, "kv": 0})
        self.assertEqual(draft["logits"], lookup["logits"])
        self.assertGreater(draft["draft_model"], 0)

    def test_host_memory_gives_plan_and_serve_the_same_host_budget(self):
        flags = {"--device-memory": "110MiB", "--max-num-seqs": 4, "--host-memory": "400MiB"}
        code, planned, errors = plan(flags, group.RANKS)
        self.assertEqual(code, 0, errors)
        with tempfile.TemporaryDirectory() as folder:
            code, served = self.serve(flags, os.path.join(folder, "report.json"))
        self.assertEqual(code, 0)
        self.assertEqual(served["host"], planned["host"])
        self.assertLessEqual(served["host"]["total_bytes"], 400 * MIB)
        self.assertEqual(sum(served["host"]["terms"].values()), served["host"]["total_bytes"])
        code, refused, errors = plan(flags | {"--host-memory": "1MiB"}, group.RANKS)
        self.assertEqual((code, refused["short"]["term"]), (4, "host"), errors)
        self.assertIn("host", errors)
        least_mib = -(-refused["short"]["needed_bytes"] // MIB)
        self.assertIn(f"give at least --host-memory {least_mib}MiB", errors.splitlines()[-1])
        flag, least = refused["remedies"][0]["flags"]
        self.assertEqual(plan(flags | {flag: least}, group.RANKS)[0], 0)
        self.assertEqual(plan(flags | {flag: int(least) - 1}, group.RANKS)[0], 4)

    def test_a_cap_beyond_the_machine_is_the_one_case_in_which_plan_and_serve_differ(self):
        flags = {"--device-memory": "64TiB", "--max-num-seqs": 4}
        self.assertEqual(plan(flags, group.RANKS)[0], 0)
        with tempfile.TemporaryDirectory() as folder:
            code, served = self.serve(flags, os.path.join(folder, "report.json"))
        self.assertEqual((code, served["fits"], served["short"]["term"]), (4, False, "host"))

    def test_every_remedy_makes_it_fit(self):
        self.apply_remedies({"--device-memory": "26MiB", "--max-model-len": 2048, "--max-num-seqs": 64,
                             "--max-num-batched-tokens": 2048, "--kv-cache-dtype": "f32", "--kv-cache-bytes": "40MiB"})

    def test_a_small_host_and_small_devices_have_remedies_that_plan_and_serve_tell_alike(self):
        for cap, host in (("24MiB", "1MiB"), ("110MiB", "1MiB")):
            flags = {"--device-memory": cap, "--host-memory": host, "--max-num-seqs": 64,
                     "--max-num-batched-tokens": 2048, "--max-num-queued-reqs": 64}
            remedies = self.apply_remedies(flags)
            self.assertTrue(remedies)
            self.assertTrue(all("--host-memory" in remedy["flags"] for remedy in remedies), remedies)
            with tempfile.TemporaryDirectory() as folder:
                code, served = self.serve(flags, os.path.join(folder, "report.json"))
            self.assertEqual((code, served["remedies"]), (4, remedies))

    def test_quantised_weights_are_a_remedy_and_a_true_one(self):
        flags = {"--device-memory": "39MiB" if group.RANKS == 1 else "30MiB", "--max-num-seqs": 1,
                 "--max-num-batched-tokens": 64, "--kv-cache-dtype": "int4", "--cache-max-entry-count": 200}
        remedies = self.apply_remedies(flags)
        self.assertIn("--weight-dtype", [flag for remedy in remedies for flag in remedy["flags"]])

    def apply_remedies(self, flags):
        """Plans something that does not fit, and again with each remedy, which must fit; returns
        the remedies."""
        code, refused, errors = plan(flags, group.RANKS)
        self.assertEqual(code, 4, errors)
        self.assertTrue(refused["remedies"] or refused["no_remedy"])
        self.assertIn(f"rank {refused['short']['rank']}", errors)
        for remedy in refused["remedies"]:
            changed, ranks = dict(flags), group.RANKS
            for flag, value in zip(remedy["flags"][::2], remedy["flags"][1::2]):
                if flag in KV_RULES:
                    changed = {k: v for k, v in changed.items() if k not in KV_RULES}
                if flag == "--tensor-parallel-size":
                    ranks = int(value)
                else:
                    changed[flag] = value
            self.assertEqual(plan(changed, ranks)[0], 0, remedy)
        return refused["remedies"]

    def test_unequal_shares_give_the_same_tokens(self):
        if group.RANKS != 2:
            self.skipTest("shares are for two ranks here")
        golden = group.golden()[0]
        with tempfile.TemporaryDirectory() as folder:
            prompts, out = os.path.join(folder, "prompts.jsonl"), os.path.join(folder, "out.jsonl")
            with open(prompts, "w", encoding="utf-8") as file:
                file.write(json.dumps({"prompt": golden["prompt"], "max_tokens": 96, "temperature": 0}))
            subprocess.run([*group.front(), group.BINARY, "run", "--model", group.MODEL, "--prompts", prompts, "--out", out,
                            "--kv-cache-dtype", "f32", "--tp-shares", "3,1"],
                           check=True, capture_output=True, env=group.ENVIRONMENT, timeout=group.LIMIT_S)
            with open(out, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["token_ids"], golden["ids"])

    def table(self, *flags):
        done = subprocess.run([group.BINARY, "plan", "--model", group.MODEL, *map(str, flags)],
                              capture_output=True, text=True, timeout=group.LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_people_get_tables_and_a_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "memory.svg")
            text = self.table("--device-memory", "1GiB", "--tp", 2, "--plot", svg)
            drawn = xml.dom.minidom.parse(svg)
            self.assertEqual(drawn.documentElement.tagName, "svg")
            words = {node.firstChild.data for node in drawn.getElementsByTagName("text")}
            self.assertLess({"rank 0 (bottleneck: kv)", "rank 1", "weights", "kv", "cap", "max_num_seqs", "largest max_model_len"}, words)
        code, _, errors = plan({"--plot": "/nowhere/memory.svg"}, 1)
        self.assertEqual(code, 2, errors)
        self.assertIn("cannot write --plot /nowhere/memory.svg", errors)
        self.assertIn("least to start", text)
        self.assertRegex(text, r"(?m)^8 +yes ")  # the scaling table
        self.assertRegex(text, r"(?m)^128 +2,048 +#")  # the curve

    def test_two_configurations_stand_side_by_side(self):
        text = self.table("--device-memory", "1GiB", "--compare=--kv-cache-dtype f32", "--compare=--tp 4")
        self.assertRegex(text, r"(?m)^ranks +1 +4$")
        self.assertRegex(text, r"(?m)^KV bytes/token/rank +12,288 +1,536$")

    def test_what_is_compared_may_be_another_machine(self):
        done = json.loads(self.table("--gpu", "l4", "--json", "--compare=--gpu h100", "--compare=--host-memory 1GiB"))
        alone = [plan({"--gpu": gpu}, 1)[1] for gpu in ("h100", "l4")]
        self.assertEqual([report["ranks"] for report in done], [report["ranks"] for report in alone])
        self.assertEqual(done[1]["host"]["available_bytes"], 1 << 30)
        code, _, errors = plan({"--gpu": "h100", "--compare": "--device cpu"}, 1)
        self.assertEqual(code, 2, errors)
        self.assertIn('--compare "--device cpu": ', errors)

    def test_what_is_compared_is_a_list_in_json(self):
        for flag in (["--compare", "--tp 4"], ["--compare=--tp 4"]):
            done = self.table("--device-memory", "1GiB", "--json", *flag)
            self.assertEqual([len(report["ranks"]) for report in json.loads(done)], [1, 4])
            self.assertEqual(json.loads(done)[0], {**plan({"--device-memory": "1GiB"}, 1)[1], "flags": []})
            self.assertEqual(json.loads(done)[1]["flags"], ["--tp", "4"])

    def test_a_gpu_is_known_by_its_name(self):
        self.assertIn("139.8 GiB", self.table("--gpu", "h200"))
        code, report, errors = plan({"--gpu": "T4"}, 1)
        self.assertEqual((code, report), (2, None))
        self.assertIn("--gpu: t4 has compute capability 7.5, and kernels need 8.0 or later", errors)

    def test_a_flag_that_leaves_too_little_is_blamed(self):
        for flag, size, says in (("--kv-cache-bytes", 1, "where the KV rule gives 1 B (1 B by --kv-cache-bytes)"),
                                 ("--reserve", "200GiB", "after a reserve of 200.0 GiB")):
            code, _, errors = plan({"--gpu": "h100", flag: size}, 1)
            self.assertEqual(code, 4, errors)
            self.assertIn(says, errors)

    def test_the_report_is_written_as_a_file_too(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            for size, expected in (("1GiB", 0), ("20MiB", 4)):
                code, report, errors = plan({"--device-memory": size, "--report": path}, 1)
                self.assertEqual(code, expected, errors)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(json.load(file), report)

    def test_a_gpu_has_arenas_of_its_own_with_or_without_a_name(self):
        flags = {"--device-memory": "1GiB", "--dtype": "bfloat16", "--kv-cache-dtype": "bfloat16", "--comm": "staged",
                 "--max-num-seqs": 4, "--max-model-len": 128, "--max-num-batched-tokens": 64}
        arenas = []
        for device in ({"--device": "cpu"}, {"--gpu": "h100"}, {"--device": "cuda"}):
            code, report, errors = plan({**flags, **device}, 2)
            self.assertEqual(code, 0, errors)
            arenas.append(report["ranks"][0]["arenas"])
        cpu, named, cuda = arenas
        self.assertEqual(named, cuda)
        for term in ("communication", "workspace"):
            self.assertNotEqual(cpu[term], cuda[term], term)

    def test_cublaslt_has_its_workspace_unless_none_is_wanted(self):
        workspace = []
        for named in ("libcublasLt.so.13", ""):
            with unittest.mock.patch.dict(os.environ, {"BULKHEAD_CUBLASLT": named}):
                _, report, _ = plan({"--gpu": "h100", "--max-model-len": 128, "--max-num-batched-tokens": 128}, 1)
                workspace.append(report["ranks"][0]["arenas"]["workspace"])
        self.assertEqual(workspace[0] - workspace[1], 32 * MIB)

    def test_experts_take_more_of_a_gpus_workspace(self):
        models = os.path.join(group.SOURCE, "tests", "data", "models")
        workspace = []
        for model in ("qwen3_bf16", "qwen3_moe_bf16"):
            code, report, errors = plan({"--gpu": "h100", "--max-model-len": 64, "--max-num-batched-tokens": 64}, 2,
                                        os.path.join(models, model))
            self.assertEqual(code, 0, errors)
            workspace.append(report["ranks"][0]["arenas"]["workspace"])
        self.assertGreater(workspace[1], workspace[0])

    def test_a_gpu_is_refused_what_it_would_refuse(self):
        for flags, says in (({"--gpu": "h200", "--dtype": "float32"}, "not in float32"),
                            ({"--device": "cuda"}, "--gpu"),
                            ({"--gpu": "h200", "--device": "cpu"}, "--device cpu")):
            code, _, errors = plan(flags, 1)
            self.assertEqual(code, 2, errors)
            self.assertIn(says, errors)

    def test_wide_heads_are_refused_a_cache_in_16_bits_where_a_gpu_has_little_shared_memory(self):
        with open(os.path.join(group.MODEL, "config.json")) as file:
            config = json.load(file)
        for head_dim, gpu, cache, expected in ((256, "l4", "bfloat16", 2), (256, "l4", "float16", 2), (256, "rtx5090", "bfloat16", 2),
                                               (136, "a10", "bfloat16", 2), (256, "l4", "int8", 0), (256, "l4", "fp8", 0),
                                               (128, "l4", "bfloat16", 0), (256, "a100-80", "bfloat16", 0), (256, "b200", "bfloat16", 0)):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump({**config, "head_dim": head_dim}, file)
                code, _, errors = plan({"--gpu": gpu, "--kv-cache-dtype": cache}, 1, folder)
                self.assertEqual(code, expected, (head_dim, gpu, cache, errors))
                drafts = json.dumps({"model": folder, "num_speculative_tokens": 4})
                as_draft, _, errors_of_draft = plan({"--gpu": gpu, "--kv-cache-dtype": cache, "--speculative-config": drafts}, 1)
                self.assertEqual(as_draft, expected, (head_dim, gpu, cache, errors_of_draft))
            if expected == 2:
                self.assertIn(f"heads of {head_dim} numbers in {cache} needs 158336 bytes of shared memory", errors)
                self.assertIn("this GPU has 101376: add --kv-cache-dtype int8", errors)
                self.assertIn("the draft model", errors_of_draft)

    def test_gemma_4_as_it_is_published_is_planned_for_gpus_with_shared_memory_for_its_heads(self):
        with open(os.path.join(group.SOURCE, "tests", "data", "models", "gemma4_bf16", "config.json")) as file:
            config = json.load(file)
        del config["per_layer_config"]
        config["head_dim"] = 256
        needs = "heads of 512 numbers in int8 needs 149696 bytes of shared memory for a block, and this GPU has 101376: add --device cpu"
        for head_dim, gpu, cache, refusal in ((512, "h100", "bfloat16", None), (512, "h100", "int4", None), (512, "a100-80", "float16", None),
                                              (288, "b200", "fp8", None), (512, "l4", "int8", needs),
                                              (296, "h100", "bfloat16", "or of 32 up to 512; the model's have 296: add --device cpu"),
                                              (544, "h100", "bfloat16", "the model's have 544: add --device cpu")):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump({**config, "global_head_dim": head_dim}, file)
                code, _, errors = plan({"--gpu": gpu, "--kv-cache-dtype": cache}, 1, folder)
            self.assertEqual(code, 2 if refusal else 0, (head_dim, gpu, cache, errors))
            self.assertIn(refusal or "", errors)

    def test_weights_in_every_quantised_format_are_planned_for_a_gpu(self):
        data = os.path.join(group.SOURCE, "tests", "data", "quantised")
        for model in ("ct_int4_g32_asym", "ct_mxfp4", "ct_nvfp4", "gpt_oss_mxfp4"):
            code, _, errors = plan({"--gpu": "h100"}, 1, os.path.join(data, model))
            self.assertEqual(code, 0, errors)

    def test_groups_that_a_gpu_has_no_layout_for_are_refused_by_name(self):
        with open(os.path.join(group.SOURCE, "tests", "data", "quantised", "gptq_act_order", "config.json")) as file:
            config = json.load(file)
        for inputs, code in ((1 << 19, 4), (1 << 20, 2)):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump({**config, "intermediate_size": inputs}, file)
                got, _, errors = plan({"--gpu": "h100", "--device-memory": "64MiB"}, 2, folder)
            self.assertEqual(got, code, errors)
            if code == 2:
                for said in ("model.layers.0.mlp.down_proj.weight has 32768 of up to", "1048544", "add --device cpu"):
                    self.assertIn(said, errors)

    def test_latents_are_planned_for_a_gpu_in_the_formats_that_it_attends_to(self):
        model = os.path.join(group.SOURCE, "tests", "data", "models", "deepseek_v2_bf16")
        bytes_per_token = {}
        for cache in ("bfloat16", "fp8"):
            code, report, errors = plan({"--gpu": "h100", "--kv-cache-dtype": cache}, 1, model)
            self.assertEqual(code, 0, errors)
            bytes_per_token[cache] = report["ranks"][0]["kv_bytes_per_token"]
        layers, numbers = 3, 40
        self.assertEqual(bytes_per_token, {"bfloat16": 2 * layers * numbers, "fp8": layers * numbers})
        code, _, errors = plan({"--gpu": "h100", "--kv-cache-dtype": "int8"}, 1, model)
        self.assertEqual(code, 2, errors)
        self.assertIn("latents in bfloat16, float16 or fp8, not in int8", errors)

    def test_a_list_that_leaves_out_a_rank_is_refused(self):
        code, _, errors = plan({"--device-memory": "1=4GiB"}, group.RANKS)
        self.assertEqual(code, 2)
        self.assertIn("--device-memory", errors)


if __name__ == "__main__":
    unittest.main()
