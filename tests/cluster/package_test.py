"""The Debian package in a bare Debian 12 made by debootstrap: apt finds what it depends on, and the program runs there.

Needs root, debootstrap, dpkg-dev, file and Debian's mirror; takes minutes, so ctest runs it only with -C slow."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

BUILD = os.path.dirname(os.path.dirname(os.environ["BULKHEAD"]))
MODEL = os.path.join(os.environ["BULKHEAD_SOURCE"], "tests", "data", "models", "llama3_gqa_bf16")
MIRROR = os.environ.get("BULKHEAD_TEST_MIRROR", "http://deb.debian.org/debian")
SECURITY = MIRROR + "-security"


def why_not():
    """What is missing here, or None."""
    if os.geteuid() != 0:
        return "debootstrap and chroot need root"
    for tool, package in (("debootstrap", "debootstrap"), ("dpkg-shlibdeps", "dpkg-dev"), ("file", "file")):
        if shutil.which(tool) is None:
            return f"there is no {tool}; install {package}"
    try:
        urllib.request.urlopen(MIRROR + "/dists/bookworm/Release", timeout=20).close()
    except (urllib.error.URLError, OSError) as error:
        return f"{MIRROR} is not reachable ({error}); BULKHEAD_TEST_MIRROR names another mirror"
    return None


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ends with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


class BareRoot:
    """A folder with a minimal Debian 12."""

    def __init__(self, path):
        self.path = path
        run("debootstrap", "--variant=minbase", "bookworm", path, MIRROR)
        with open(path + "/etc/apt/sources.list", "w", encoding="utf-8") as f:
            f.write(f"deb {MIRROR} bookworm main\ndeb {MIRROR} bookworm-updates main\n"
                    f"deb {SECURITY} bookworm-security main\n")
        shutil.copy("/etc/resolv.conf", path + "/etc/resolv.conf")

    def run(self, *command):
        # /proc is mounted in a mount namespace of the command's own, and gone when it ends.
        return run("unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', self.path, *command,
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"})


class PackageTest(unittest.TestCase):
    def test_the_package_runs_where_nothing_else_is_installed(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            run("cpack", "-G", "DEB", "-B", folder, cwd=BUILD)
            (package,) = [name for name in os.listdir(folder) if name.endswith(".deb")]
            root = BareRoot(os.path.join(folder, "root"))
            shutil.copy(os.path.join(folder, package), root.path + "/root/")
            shutil.copytree(MODEL, root.path + "/root/model")
            root.run("apt-get", "update", "-q")
            root.run("apt-get", "install", "-q", "-y", "--no-install-recommends", "/root/" + package)
            self.assertTrue(root.run("bulkhead", "--version").startswith("bulkhead "))
            self.assertIn("fits", root.run("bulkhead", "plan", "--model", "/root/model", "--device-memory", "1GiB"))


if __name__ == "__main__":
    missing = why_not()
    if missing is not None:
        print(f"package_test.py: skipped: {missing}")
        sys.exit(77)
    unittest.main()
