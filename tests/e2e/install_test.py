"""`cmake --install` and the Debian package: what is installed works and is complete."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.path.dirname(os.path.dirname(os.environ["BULKHEAD"]))
DOC = "share/doc/bulkhead"


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=250, **more).stdout


class Installed:
    """Checks of a root where the program is installed below `prefix`."""

    def check(self, prefix, man="bulkhead.1"):
        program = os.path.join(prefix, "bin", "bulkhead")
        self.assertTrue(run(program, "--version").startswith("bulkhead "))
        for name in ("share/man/man1/" + man, "share/bash-completion/completions/bulkhead", DOC + "/LICENSE",
                     "share/bulkhead/proto/bulkhead/v1/generation.proto"):
            self.assertGreater(os.path.getsize(os.path.join(prefix, name)), 0)
        sample = os.path.join(prefix, "share/bulkhead/examples/models/sample")
        self.assertIn("fits", run(program, "plan", "--model", sample, "--device-memory", "1GiB"))
        self.check_links(os.path.join(prefix, DOC))

    def check_links(self, folder):
        checked = 0
        for here, _, names in os.walk(folder):
            for name in names:
                if not name.endswith(".md"):
                    continue
                with open(os.path.join(here, name), encoding="utf-8") as file:
                    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", file.read())
                for link in links:
                    if "://" not in link:
                        self.assertTrue(os.path.exists(os.path.join(here, link)), f"{name}: {link}")
                        checked += 1
        self.assertGreater(checked, 15)


class InstallTest(Installed, unittest.TestCase):
    def test_what_is_installed_is_complete(self):
        with tempfile.TemporaryDirectory() as prefix:
            run("cmake", "--install", BUILD, "--prefix", prefix)
            self.check(prefix)


@unittest.skipUnless(shutil.which("dpkg-shlibdeps") and shutil.which("file"), "there is no dpkg-dev, or no file")
class DebianPackageTest(Installed, unittest.TestCase):
    def test_the_package_is_complete_and_names_what_it_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            run("cpack", "-G", "DEB", "-B", folder, cwd=BUILD)
            (package,) = [name for name in os.listdir(folder) if name.endswith(".deb")]
            self.assertRegex(package, r"^bulkhead_\d+\.\d+\.\d+_amd64\.deb$")
            package = os.path.join(folder, package)
            # apt leaves a package alone whose version is installed already, so each commit has its own.
            # Sources of an archive, or those that git does not trust, have none.
            git = ["git", "-C", os.environ["BULKHEAD_SOURCE"], "log", "-1", "--abbrev=7", "--format=%h"]
            commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() if shutil.which("git") else ""
            version = run("dpkg-deb", "-f", package, "Version").strip()
            self.assertRegex(version, r"^\d+\.\d+\.\d+" + (r"\+\d{8}\.\d{6}\." + commit if commit else "") + "$")
            depends = run("dpkg-deb", "-f", package, "Depends")
            for needed in ("libc6 ", "libgrpc++1.51", "libprotobuf", "libopenmpi3", "libpcre2-8", "libicu", "openmpi-bin"):
                self.assertIn(needed, depends)
            root = os.path.join(folder, "root")
            run("dpkg-deb", "-x", package, root)
            self.check(os.path.join(root, "usr"), "bulkhead.1.gz")
            # What lintian takes for errors without it.
            for name in ("copyright", "changelog.gz"):
                self.assertGreater(os.path.getsize(os.path.join(root, "usr", DOC, name)), 0)
            self.assertGreater(run("dpkg-deb", "-f", package, "Description").count("\n "), 1)


if __name__ == "__main__":
    unittest.main()
