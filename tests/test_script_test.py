#!/usr/bin/python3
"""scripts/test.sh: which tests get a second run, and what it then exits with. ctest is a stand-in."""
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts")
FAILED = "build/release/Testing/Temporary/LastTestsFailed.log"
CTEST = f"""#!/bin/sh
case "$*" in *--rerun-failed*) echo "second run: $*"; exit $SECOND;; esac
echo "$PRINTS"
[ -z "$FAILS" ] && exit 0
mkdir -p $(dirname {FAILED})
printf "$FAILS" > {FAILED}
exit 8
"""


class TestScript(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.mkdir(os.path.join(self.root, "scripts"))
        for name in ("test.sh", "environment.sh", "skipped_tests.py"):
            shutil.copy(os.path.join(SCRIPTS, name), os.path.join(self.root, "scripts"))
        for name, text in (("scripts/install_packages.sh", "#!/bin/sh\n"), ("scripts/build.sh", "#!/bin/sh\n"), ("ctest", CTEST)):
            path = os.path.join(self.root, name)
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
            os.chmod(path, 0o755)

    def ends(self, *failed, second=0, prints="", args=()):
        """(exit code, output) where these tests fail in the first run, and the second ends with `second`."""
        environment = {**os.environ, "PATH": f"{self.root}:{os.environ['PATH']}", "SECOND": str(second), "PRINTS": prints,
                       "FAILS": "".join(f"{i}:{name}\\n" for i, name in enumerate(failed, 1))}
        done = subprocess.run([os.path.join(self.root, "scripts/test.sh"), *args], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", check=False)
        return done.returncode, done.stdout

    def test_tests_of_groups_get_one_more_run_alone_and_are_named(self):
        code, output = self.ends("cluster_faults", "e2e_chat", "comm_e2e_test")
        self.assertEqual(code, 0, output)
        self.assertIn("second run: --preset release -j 1 --rerun-failed", output)
        self.assertIn("look into what the first run printed: cluster_faults e2e_chat comm_e2e_test", output)

    def test_one_that_fails_alone_too_fails_the_gate(self):
        code, output = self.ends("e2e_chat", second=8)
        self.assertEqual(code, 8, output)
        self.assertNotIn("passed alone", output)

    def test_no_other_failure_gets_a_second_run(self):
        for failed, more in ((["memory_unit_test"], {}), (["e2e_chat", "lint"], {}), (["my_e2e_test"], {}),
                             (["e2e_chat"], {"prints": " 1/93 Test #43: e2e_chat ....***Timeout 1500 sec"}),
                             (["e2e_chat"], {"args": ["-L", "e2e"]})):
            with self.subTest(failed=failed, **more):
                code, output = self.ends(*failed, **more)
                self.assertEqual(code, 8, output)
                self.assertNotIn("second run", output)

    def test_failures_of_an_earlier_run_do_not_count(self):
        self.ends("memory_unit_test")
        self.assertEqual(self.ends()[0], 0)
        self.assertFalse(os.path.exists(os.path.join(self.root, FAILED)))


if __name__ == "__main__":
    unittest.main()
