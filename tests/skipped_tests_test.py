#!/usr/bin/python3
"""scripts/skipped_tests.py reports every kind of skip with its reason, from ctest's output."""
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts", "skipped_tests.py")
RESULTS = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux-c++" tests="4" failures="1" disabled="0" skipped="1">
  <testcase name="whole" classname="whole" time="0.3" status="notrun">
    <skipped message="SKIP_RETURN_CODE=77"/>
    <system-out>faults_test.py: skipped: making hosts needs root
</system-out>
  </testcase>
  <testcase name="unittest" classname="unittest" time="1" status="run">
    <system-out>test_it (__main__.ATest.test_it) ... skipped 'no memory cgroup'
test_other (__main__.ATest.test_other) ... ok
OK (skipped=1)
</system-out>
  </testcase>
  <testcase name="gtest" classname="gtest" time="1" status="run">
    <system-out>[ RUN      ] Ledger.Refuses
../../tests/memory/ledger_test.cc:58: Skipped
fatal in debug builds

[  SKIPPED ] Ledger.Refuses (0 ms)
[ RUN      ] Ledger.Takes
[       OK ] Ledger.Takes (0 ms)
</system-out>
  </testcase>
  <testcase name="red" classname="red" time="1" status="fail">
    <failure message=""/>
    <system-out>FAIL: test_it (__main__.ATest.test_it)
</system-out>
  </testcase>
</testsuite>
"""


def told(results):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as f:
        f.write(results)
        f.flush()
        return subprocess.run([PROGRAM, f.name], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


class SkippedTestsTest(unittest.TestCase):
    def test_whole_tests_and_parts_are_told_with_their_reason(self):
        self.assertEqual(told(RESULTS), "3 skipped\n"
                         "  whole: making hosts needs root\n"
                         "  unittest: test_it: no memory cgroup\n"
                         "  gtest: Ledger.Refuses: fatal in debug builds\n")

    def test_nothing_skipped_is_told_as_well(self):
        self.assertEqual(told("<testsuite/>"), "nothing was skipped\n")


if __name__ == "__main__":
    unittest.main()
