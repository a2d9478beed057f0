"""Groups that are started: `bench scale`, `bench verify` and the children that they run."""
import copy
import signal
import unittest

from bench import groups, scale, verify_answers
from bench.ends import Failure
from bench.flags import Flags
from bench.groups import End, Launch, check, command

FRAME = "--------------------------------------------------------\n"


class ChildTest(unittest.TestCase):
    def failure(self, what, end):
        with self.assertRaises(Failure) as failed:
            check(what, end)
        return failed.exception.code, str(failed.exception)

    def test_output_errors_and_exit_code_come_back(self):
        self.assertEqual(groups.run(["sh", "-c", "echo result; echo why >&2; exit 4"]), End(4, "result\n", "why\n"))
        self.assertEqual(groups.run(["sh", "-c", "kill -9 $$"]).exit_code, 137)

    def test_a_signal_for_us_ends_the_child_and_handlers_come_back(self):
        before = signal.getsignal(signal.SIGTERM)
        end = groups.run(["sh", "-c", "trap 'echo told; exit 3' TERM; kill -TERM $PPID; while :; do sleep 0.01; done"])
        self.assertEqual((end.exit_code, end.out), (3, "told\n"))
        self.assertIs(signal.getsignal(signal.SIGTERM), before)
        ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
        try:
            self.assertEqual(groups.run(["sh", "-c", "kill -HUP $PPID; sleep 0.05"]).exit_code, 0)
        finally:
            signal.signal(signal.SIGHUP, ignored)

    def test_mpiruns_code_after_a_signal_is_that_of_the_signal(self):
        end = groups.run(["sh", "-c", "trap 'exit 1' INT; kill -INT $PPID; while :; do sleep 0.01; done"])
        self.assertEqual(end.exit_code, 130)
        self.assertEqual(self.failure("the group of 2", End(130, "", "mpirun: aborting\n")),
                         (130, "the group of 2 was stopped by signal 2"))

    def test_a_program_that_is_missing_is_named(self):
        with self.assertRaisesRegex(Failure, "no-such-launcher") as failed:
            groups.run(["no-such-launcher", "-n", "2"])
        self.assertEqual(failed.exception.code, 2)

    def test_our_last_line_is_the_cause_and_our_codes_are_kept(self):
        check("it", End(0, "", "bulkhead: nothing\n"))
        self.assertEqual(self.failure("the group of 2", End(4, "", "log\nbulkhead: does not fit\nmpirun says more\n")),
                         (4, "the group of 2 ended with code 4: does not fit"))
        code, text = self.failure("the group of 2", End(213, "", "no slots\n"))
        self.assertEqual(code, 5)
        self.assertIn("no slots", text)

    def test_a_launchers_pages_of_advice_do_not_hide_the_cause(self):
        advice = (FRAME + "Not enough slots\nfor 2 ranks:\n\n  true\n\nEither ask for fewer\nor use\n"
                  "--use-hwthread-cpus option.\n\nso it is\n" + FRAME)
        self.assertRegex(self.failure("it", End(1, "", advice))[1], r"code 1: Not enough slots \| for 2 ranks:$")
        self.assertRegex(self.failure("it", End(1, "", "ssh: no host nan\n" + advice + advice))[1],
                         "code 1: ssh: no host nan$")

    def test_a_launchers_own_code_is_none_of_ours(self):
        refusal = (FRAME + "mpirun has detected an attempt to run as root.\n\nYou can override this protection by adding "
                   "the --allow-run-as-root option to the\ncommand line.\n" + FRAME)
        self.assertEqual(self.failure("the group of 2", End(1, "", refusal)),
                         (5, "the group of 2 ended with code 1: mpirun does not run as root; add --launcher "
                             "'mpirun --allow-run-as-root --bind-to none'"))
        self.assertEqual(self.failure("it", End(1, "", "no such host\n"))[0], 5)

    def test_a_group_is_named_with_its_hosts(self):
        self.assertEqual(groups.name(Launch("mpirun", ["nan", "b"]), 2), "the group of 2 on hosts nan, b")
        self.assertEqual(groups.name(Launch("mpirun", ["nan", "b"]), 1), "the group of 1")
        self.assertEqual(groups.name(Launch("mpirun", []), 2), "the group of 2")

    def test_command_lines(self):
        for launch, ranks, words in (
                (Launch("mpirun", ["a"]), 1, ["p"]),  # one rank needs no launcher
                (Launch("mpirun --bind-to none", ["a", "b"]), 5,
                 ["mpirun", "--bind-to", "none", "--host", "a:3,b:3", "-n", "5", "p"]),
                # More ranks than cores are allowed where mpirun asks.
                (Launch("mpirun", []), 3, ["mpirun", "--oversubscribe", "-n", "3", "p"]),
                (Launch("mpirun", []), 2, ["mpirun", "-n", "2", "p"]),
                (Launch("srun --mpi=pmix", []), 3, ["srun", "--mpi=pmix", "-n", "3", "p"])):
            self.assertEqual(command(launch, ranks, 2, ["p"]), words)


def row_of(ranks, threads, prefill, decode):
    planned = {"fits": True, "kv_tokens": 1000 * ranks, "binding": {"rank": 0, "term": "kv"}}
    return {"tensor_parallel_size": ranks, "planned": planned, "measured": {
        **planned, "threads": threads, "decode_comm_share": 0.25, "prefill_comm_share": 0.0, "slowest_rank": ranks - 1,
        "slowest_excess": 0, "hosts": ["a"] * ranks, "cases": [
            {"batch_size": 8, "input_len": 128, "prefill_tokens_per_s": prefill, "decode_tokens_per_s": decode}]}}


TOO_SMALL = {"tensor_parallel_size": 1, "measured": None,
             "planned": {"fits": False, "kv_tokens": 0, "binding": {"rank": 0, "term": "weights"}}}


class ScaleTest(unittest.TestCase):
    def test_flags_are_shared_out_between_plan_and_throughput(self):
        flags = Flags("scale", "", "")
        groups.add_flags(flags, [1, 2])
        args = ["--tp", "2,4", "model", "--batch_size=3", "--device-memory", "4GiB", "--json", "--output-len", "5",
                "--hosts", "a,b", "--input-len=3,7"]
        options, rest = flags.split(args)
        self.assertEqual((options.tp, options.hosts, options.json), ([2, 4], "a,b", True))
        throughput, plan = scale.share_out(rest)
        self.assertEqual(throughput, ["model", "--batch-size=3", "--device-memory", "4GiB", "--output-len", "5",
                                      "--input-len=3,7"])
        self.assertEqual(plan, ["--max-num-seqs", "3", "--max-model-len", "12", "model", "--device-memory", "4GiB"])
        self.assertEqual(scale.share_out(["m", "--repeats", "2"])[1],
                         ["--max-num-seqs", "16", "--max-model-len", "192", "m"])

    def test_what_no_group_could_be_started_with_is_refused(self):
        for args, words in ((["m", "--batch-size", "0"], "--batch-size"), (["m", "--tp", "0"], "--tp"),
                            (["m", "--tensor-parallel-size", "2"], "give the sizes with --tp"),
                            (["m", "--hosts", "a", "--launcher", "srun"], "--hosts is for mpirun"),
                            (["m", "--hosts", "a,,b"], "give names"), (["m", "--out", "/nowhere/x"], "cannot write --out")):
            with self.subTest(args), self.assertRaisesRegex(Failure, words) as refused:
                scale.run("no program", args)
            self.assertEqual(refused.exception.code, 2)

    def test_efficiency_is_speed_over_threads(self):
        rows = [row_of(2, 1, 100, 10), row_of(8, 1, 300, 40)]
        sizes = scale.scale_json(rows, "v", "m")["sizes"]
        case = sizes[1]["measured"]["cases"][0]
        self.assertEqual([case[key] for key in ("prefill_speedup", "prefill_efficiency", "decode_efficiency")],
                         [3, 0.75, 1])
        self.assertEqual(sizes[1]["measured"]["kv_tokens"], sizes[1]["planned"]["kv_tokens"])
        for part in ("75.0 %", "ranks 0-7 on a", "8,000"):
            self.assertIn(part, scale.scale_table(rows))

    def test_a_size_that_does_not_fit_has_no_measurement(self):
        table = scale.scale_table([TOO_SMALL, row_of(2, 1, 100, 0)])
        for part in ("does not fit", "rank 0, weights", "1.00x"):  # the first one that was measured is the base
            self.assertIn(part, table)
        result = scale.scale_json([TOO_SMALL], "v", "m")
        self.assertIsNone(result["sizes"][0]["measured"])
        self.assertEqual((result["version"], result["model"]), ("v", "m"))
        self.assertNotIn("tokens/s", scale.scale_table([TOO_SMALL]))

    def test_what_children_print_is_read(self):
        report = {"fits": True, "kv_tokens": 64, "binding": {"rank": 1, "term": "kv"}, "more": 3}
        measured = scale.measured_of({
            "threads": 2, "memory": {"report": report},
            "group": {"ranks": [{"host": "a"}, {"host": "b"}], "prefill": {"comm_share": 0.5},
                      "decode": {"comm_share": 0.25, "slowest_rank": 1, "slowest_excess": 0.125}},
            "cases": [{"batch_size": 8, "input_len": 128, "prefill_tokens_per_s": 5, "decode_tokens_per_s": 7,
                       "runs": []}]})["measured"]
        self.assertEqual((measured["threads"], measured["kv_tokens"], measured["hosts"]), (2, 64, ["a", "b"]))
        self.assertEqual((measured["decode_comm_share"], measured["prefill_comm_share"]), (0.25, 0.5))
        self.assertEqual(measured["cases"][0]["decode_tokens_per_s"], 7)

    def test_anything_else_that_a_child_prints_is_refused(self):
        for text in ("", "{}", "READY", "[1]"):
            for what, read in (("plan", scale.capacity_of), ("bench throughput", scale.measured_of)):
                with self.subTest(text), self.assertRaisesRegex(Failure, f"{what} printed something else") as refused:
                    scale.parsed(what, text, read)
                self.assertEqual(refused.exception.code, 70)


def group_of(ranks):
    return {"tensor_parallel_size": ranks, "equal_shares": True,
            "hosts": ["a" if 2 * rank < ranks else "b" for rank in range(ranks)],
            "answers": [{"input_len": 17, "sampled": False, "tokens": [1, 2, 3], "logprob_bits": [10, 20, 30],
                         "logits_sha256": "aa"},
                        {"input_len": 1, "sampled": True, "tokens": [4, 5], "logprob_bits": [40, 50],
                         "logits_sha256": "bb"}]}


class VerifyAnswersTest(unittest.TestCase):
    def compared(self, group):
        comparison = verify_answers.compare(group_of(1), group)
        return comparison, verify_answers.comparison_text(comparison)

    def test_equal_answers_are_equal(self):
        comparison, text = self.compared(group_of(4))
        self.assertEqual((comparison["ok"], comparison["tokens"]), (True, 5))
        self.assertEqual(text, "4 ranks against 1 (ranks 0-1 on a, 2-3 on b): 2 answers, 5 tokens: all tokens equal; "
                               "all logits equal, bit by bit\n")

    def test_a_token_that_differs_is_named(self):
        group = group_of(3)
        group["answers"][0]["tokens"][2] = 7
        group["answers"][1]["tokens"].append(6)
        comparison, text = self.compared(group)
        self.assertEqual((comparison["ok"], comparison["differing_answers"]), (False, 2))
        self.assertEqual([one["first_difference"] for one in comparison["answers"]], [2, 2])
        self.assertIn("differ at 2", text)

    def test_bits_must_be_equal_where_they_are_promised(self):
        for ranks, equal_shares, promised in ((1, True, True), (2, True, True), (8, True, True), (3, True, False),
                                              (6, True, False), (2, False, False)):
            for key, value in (("logits_sha256", "cc"), ("logprob_bits", [41, 50])):
                with self.subTest(ranks=ranks, equal_shares=equal_shares, key=key):
                    group = copy.deepcopy({**group_of(ranks), "equal_shares": equal_shares})
                    group["answers"][1][key] = value
                    comparison, text = self.compared(group)
                    self.assertEqual(comparison["ok"], not promised)
                    self.assertEqual((comparison["differing_bits"], comparison["differing_answers"]), (1, 0))
                    self.assertEqual("not promised" not in text, promised)

    def test_another_number_of_answers_is_not_compared(self):
        group = group_of(2)
        group["answers"].pop()
        with self.assertRaises(Failure) as refused:
            verify_answers.compare(group_of(1), group)
        self.assertEqual(refused.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
