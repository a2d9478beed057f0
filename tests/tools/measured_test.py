"""What the program measured of groups, and planned for them, as figures, tables and charts."""
import io
import os
import tempfile
import unittest
import unittest.mock
import xml.dom.minidom

from bench import charts, comm, plan_plot, simulate, throughput
from bench.ends import Failure
from bench.ranks import comm_share, ranks_json, ranks_table, skew
from bench.text import bytes_text, clock, placement, table


def totals(compute_s, comm_s, steps=1):
    return {"steps": steps, "total_s": compute_s + comm_s, "comm_s": comm_s, "longest_s": compute_s + comm_s}


def rank_of(rank, host, compute_s, comm_s):
    return {"rank": rank, "host": host, "load_s": 1.5, "load_bytes": 5 << 40, "resident_bytes_peak": 77,
            "clock_offset_us": -1.5, "clock_error_us": 0.25, "decode": totals(compute_s, comm_s),
            "prefill": totals(0, 0, steps=0)}


class TextTest(unittest.TestCase):
    def test_columns_are_as_wide_as_their_widest_cell(self):
        self.assertEqual(table([["a", "bb"], ["ccc", "d"]]), "a    bb\nccc   d\n")

    def test_bytes_are_in_the_largest_unit_below_them(self):
        for count, text in ((0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 50, "5120.0 TiB")):
            self.assertEqual(bytes_text(count), text)

    def test_placement_names_each_host_at_the_ranks_that_it_has(self):
        self.assertEqual(placement(["a"]), "rank 0 on a")
        self.assertEqual(placement(["a", "a", "a", "b"]), "ranks 0-2 on a, 3 on b")
        self.assertEqual(placement(["a", "b", "a"]), "ranks 0 on a, 1 on b, 2 on a")
        self.assertEqual(clock(3.2, 1.5), "+3.2 +- 1.5")


class RanksTest(unittest.TestCase):
    def test_the_slowest_rank_is_the_one_that_computes_longest(self):
        # Both steps take 4 s; rank 0 waits for rank 1.
        ranks = [rank_of(0, "a", 1, 3), rank_of(1, "b", 3, 1)]
        self.assertEqual(skew(ranks, "decode"), (1, 0.5))
        self.assertEqual(comm_share(ranks, "decode"), 0.5)
        text = ranks_table(ranks)
        self.assertIn("decode: rank 1 (b) is the slowest, it computes 50.0 % longer", text)
        self.assertNotIn("prefill: rank", text)  # there was none
        self.assertIn("-1.5 +- 0.2", text)
        json = ranks_json(ranks)
        self.assertEqual(json["decode"]["slowest_rank"], 1)
        self.assertEqual(json["ranks"][1]["decode"]["comm_share"], 0.25)
        self.assertEqual(json["ranks"][0]["decode"]["compute_ms"], 1000)

    def test_nothing_measured_is_no_division_by_zero(self):
        self.assertEqual(skew([rank_of(0, "a", 1, 0)] * 2, "prefill"), (0, 0))
        self.assertEqual(comm_share([], "prefill"), 0)
        self.assertNotIn("slowest", ranks_table([rank_of(0, "a", 1, 0)]))


def run_of(prefill, decode, total, first_token_s=(), step_s=()):
    return {"prefill_tokens_per_s": prefill, "decode_tokens_per_s": decode, "total_tokens_per_s": total,
            "first_token_s": list(first_token_s), "step_s": list(step_s)}


def throughput_of(*runs):
    return {"bench": "throughput", "memory": {"report": {"fits": True}}, "ranks": [rank_of(0, "a", 1, 0)],
            "cases": [{"batch_size": 8, "input_len": 128, "output_len": 64, "runs": list(runs)}]}


class ThroughputTest(unittest.TestCase):
    def test_table_and_json_say_the_same(self):
        measured = throughput_of(run_of(100, 10.0, 50), run_of(300, 30.0, 70), run_of(200, 20.0, 60))
        self.assertIn("200.0 (100.0 - 300.0)", throughput.throughput_table(measured))
        json = throughput.throughput_json(measured)
        self.assertEqual(json["cases"][0]["decode_tokens_per_s"], 20.0)
        self.assertEqual(len(json["cases"][0]["runs"]), 3)
        self.assertNotIn("step_s", json["cases"][0]["runs"][0])
        self.assertEqual(json["memory"]["report"]["fits"], True)
        self.assertEqual(json["group"]["ranks"][0]["host"], "a")

    def test_latencies_are_pooled_over_the_runs(self):
        json = throughput.throughput_json(throughput_of(run_of(1, 1, 1, [1], [1, 1]), run_of(1, 1, 1, [2], [1, 1])))
        case = json["cases"][0]
        self.assertEqual(case["first_token"]["p50_ms"], 1500)
        self.assertEqual(case["step"], {"count": 4, "p50_ms": 1000, "p99_ms": 1000})

    def test_a_decode_rate_that_was_not_measured_is_none(self):
        measured = throughput_of(run_of(100, None, 50))
        self.assertIsNone(throughput.throughput_json(measured)["cases"][0]["runs"][0]["decode_tokens_per_s"])
        self.assertRegex(throughput.throughput_table(measured), r"100.0 \(100.0 - 100.0\) +- +50.0")


def comm_of(hosts, collective="all_reduce", bare=((), ()), pairs=(), shared_core_share=0, calls=(3e-6, 1e-6, 2e-6)):
    return {"bench": "comm", "tensor_parallel_size": len(hosts), "hosts": list(hosts), "may_spin": True,
            "shared_core_share": shared_core_share, "pairs": list(pairs), "cases": [
                {"collective": collective, "bytes": 4000, "message": "hidden x 1", "call_s": list(calls),
                 "bare_whole_s": list(bare[0]), "bare_half_s": list(bare[1])}]}


class CommTest(unittest.TestCase):
    def test_bus_bandwidth_follows_nccl_tests(self):
        for collective, ranks, factor in (("all_reduce", 8, 1.75), ("all_reduce", 2, 1), ("all_gather", 4, 0.75),
                                          ("gather", 4, 0.75), ("broadcast", 4, 1)):
            self.assertEqual(comm.bus_factor(collective, ranks), factor)

    def test_the_faster_bare_loop_stands_beside_its_size(self):
        measured = comm_of(["a", "a"], bare=([4e-6], [1e-6]))
        text = comm.comm_table(measured)
        self.assertIn("of bare", text)
        self.assertIn("2.00x", text)
        case = comm.comm_json(measured)["cases"][0]
        for key in ("of_bare", "algorithm_gb_per_s", "bus_gb_per_s", "p50_us"):
            self.assertAlmostEqual(case[key], 2)

    def test_without_a_bare_loop_its_columns_are_absent(self):
        measured = comm_of(["a"] * 3)
        self.assertNotIn("bare", comm.comm_table(measured))
        self.assertNotIn("of_bare", comm.comm_json(measured)["cases"][0])

    def test_ranks_that_shared_a_core_are_told(self):
        self.assertNotIn("taking turns", comm.comm_table(comm_of(["a", "a"])))
        self.assertIn("behind 25 % of the turns", comm.comm_table(comm_of(["a", "a"], shared_core_share=0.25)))

    def test_pairs_have_a_table_of_their_own(self):
        pair = {"ranks": [0, 1], "latency_s": 5e-7, "bytes_per_s": 4e9}
        self.assertIn("0 - 1          0.50  4.00", comm.comm_table(comm_of(["a", "b"], "broadcast", pairs=[pair])))


def simulated():
    steps = {"plan_s": [1e-6] * 4, "encode_s": [2e-6] * 4, "hand_out_s": [3e-6] * 4, "commit_s": [4e-6] * 4,
             "queued": [0, 5, 99, 100], "drawn": [900] * 4, "plan_bytes": [7] * 4}
    return {"bench": "simulate", "requests": 4,
            "assumed": {"step_us": 1000, "decode_row_us": 10, "prompt_token_us": 1, "message_us": 100},
            "token": {"vocab_size": 32000, "greedy_us": 5, "sampled_us": 20, "detokenise_us": 1},
            "runs": [{"ranks": 512, "max_num_seqs": 1000, "copies": 7, "submit_us": 1, "simulated_s": 1,
                      "tokens_per_s": 5, "rank0_share": 0.5, "steps": steps}]}


class SimulateTest(unittest.TestCase):
    def test_queues_are_told_apart_by_their_magnitude(self):
        result = simulate.simulate_json(simulated())
        ranges = result["runs"][0]["by_queue"]
        self.assertEqual([(row["queue"], row["steps"]) for row in ranges], [("0", 1), ("1 - 99", 2), ("100 - 999", 1)])
        self.assertAlmostEqual(ranges[1]["rank0_p50_us"], 10)
        self.assertEqual(ranges[1]["drawn"], 900)
        self.assertAlmostEqual(result["runs"][0]["rank0_p99_us"], 10)
        self.assertNotIn("steps", result["runs"][0])
        text = simulate.simulate_table(result)
        self.assertIn("100 - 999", text)
        self.assertIn("18000.0", text)  # 900 sampled tokens of 20 us

    def test_the_cost_is_drawn(self):
        self.assertIn("512 ranks", charts.svg(simulate.cost_chart(simulate.simulate_json(simulated()))))


def plan(fits=True):
    gib = 1 << 30
    rank = {"host": "", "device": "gpu", "total_bytes": 16 * gib, "others_bytes": gib, "driver_bytes": 0,
            "reserve_bytes": gib, "transient_bytes": 0, "arenas": {"weights": 8 * gib, "kv": 4 * gib, "rope": 0}}
    return {"title": "Llama, 2 ranks", "curve": [[4, 8192], [8, 4096], [16, 2048]],
            "report": {"fits": fits, "binding": {"rank": 1, "term": "kv"}, "ranks": [{"rank": i, **rank} for i in (0, 1)]}}


class PlanPlotTest(unittest.TestCase):
    def test_arenas_stand_beside_what_each_rank_has_and_the_binding_term_is_marked(self):
        drawn = plan_plot.draw(plan())
        arenas, curve = drawn.axes
        self.assertEqual([text.get_text() for text in arenas.get_yticklabels()], ["rank 0", "rank 1 (bottleneck: kv)"])
        widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in arenas.containers}
        self.assertEqual(widths, {"others": [1, 1], "reserve": [1, 1], "weights": [8, 8], "kv": [4, 4]})
        edges = {bars.get_label(): [bar.get_linewidth() > 1 for bar in bars] for bars in arenas.containers}
        self.assertEqual(edges["kv"], [False, True])
        self.assertEqual(edges["weights"], [False, False])
        self.assertEqual([segment[0][0] for segment in arenas.collections[0].get_segments()], [16, 16])  # the caps
        self.assertEqual(list(curve.lines[0].get_xdata()), [1, 4, 8, 16])
        self.assertEqual(list(curve.lines[0].get_ydata()), [8192, 8192, 4096, 2048])
        self.assertEqual((curve.get_xlabel(), curve.get_ylabel()), ("max_num_seqs", "largest max_model_len"))

    def test_what_does_not_fit_is_drawn_too(self):
        drawn = plan_plot.draw({**plan(fits=False), "curve": []})
        self.assertIn("does not fit", drawn.axes[0].get_title())
        self.assertEqual(drawn.axes[1].texts[0].get_text(), "no sequence fits")

    def test_the_name_of_the_file_says_what_is_written(self):
        drawn = plan_plot.draw(plan())
        with tempfile.TemporaryDirectory() as folder:
            for name, begin in (("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG"), ("a.pdf", b"%PDF")):
                path = os.path.join(folder, name)
                charts.save(drawn, path, "--plot")
                with open(path, "rb") as f:
                    self.assertTrue(f.read().startswith(begin), name)
            xml.dom.minidom.parse(os.path.join(folder, "a.svg"))
        for path, words in (("/nowhere/a.svg", "cannot write --plot"), ("curve.jpeg", "ends in .svg, .png or .pdf")):
            with self.assertRaisesRegex(Failure, words) as refused:
                charts.save(drawn, path, "--plot")
            self.assertEqual(refused.exception.code, 2)

    def test_without_matplotlib_the_package_is_named(self):
        with unittest.mock.patch.object(charts, "library", lambda: None), \
                unittest.mock.patch("sys.stdin", io.StringIO("{}")), \
                self.assertRaisesRegex(Failure, "--plot needs matplotlib: apt install python3-matplotlib") as refused:
            plan_plot.run("bulkhead", ["curve.svg"])
        self.assertEqual(refused.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
