"""What deploy/ has for others to run: flags that the program takes, ports and paths that agree."""
import glob
import os
import re
import shlex
import subprocess
import unittest

SOURCE = os.environ["BULKHEAD_SOURCE"]
PROGRAM = os.environ["BULKHEAD"]
DEPLOY = os.path.join(SOURCE, "deploy")

try:
    import yaml
except ImportError:
    yaml = None


def accepts(*flags):
    """That `serve` takes the flags; the message if not."""
    done = subprocess.run([PROGRAM, "serve", *flags, "--print-config"], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stderr


def documents():
    for path in sorted(glob.glob(os.path.join(DEPLOY, "kubernetes", "*.yaml"))):
        with open(path, encoding="utf-8") as file:
            for document in yaml.safe_load_all(file):
                yield os.path.basename(path), document


def pods(document):
    """The pod specifications in a document."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for value in document.values():
            yield from pods(value)


def serve_flags(container):
    """The words behind `bulkhead serve`; none where a container does something else."""
    words = container.get("command", []) + container.get("args", [])
    if words[:2] == ["/bin/bash", "-c"]:
        words = shlex.split(words[2])
    for i in range(1, len(words)):
        if words[i - 1].endswith("bulkhead") and words[i] == "serve":
            return words[i + 1:]
    return []


class ProfilesTest(unittest.TestCase):
    def test_every_profile_is_a_config_file_that_serve_takes(self):
        files = glob.glob(os.path.join(DEPLOY, "profiles", "*.toml"))
        self.assertEqual(len(files), 2)
        for path in files:
            self.assertEqual(accepts("--model", "DIR", "--config", path), "", path)


@unittest.skipIf(yaml is None, "python3-yaml is not installed")
class ManifestsTest(unittest.TestCase):
    def test_every_group_is_started_with_flags_that_serve_takes(self):
        found = 0
        for path, document in documents():
            for pod in pods(document):
                for container in pod["containers"]:
                    flags = serve_flags(container)
                    if not flags:
                        continue
                    found += 1
                    self.assertEqual(accepts(*flags), "", path)
                    named = dict(flag.split("=", 1) for flag in flags if "=" in flag)
                    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                    self.assertEqual(ports["http"], int(named["--http-port"]), path)
                    self.assertEqual(ports["metrics"], int(named["--metrics-port"]), path)
                    for probe, route in (("startupProbe", "/ready"), ("readinessProbe", "/ready"),
                                         ("livenessProbe", "/live")):
                        self.assertEqual(container[probe]["httpGet"], {"path": route, "port": "http"}, path)
                    drain_s = int(named["--drain-timeout"].rstrip("s"))
                    self.assertGreater(pod["terminationGracePeriodSeconds"], drain_s, path)
                    self.assertEqual(container["resources"]["requests"]["memory"],
                                     container["resources"]["limits"]["memory"], path)
        self.assertEqual(found, 2)

    def test_what_selects_pods_finds_them(self):
        for path, document in documents():
            spec = document["spec"]
            selector = spec.get("selector", {})
            labels = selector.get("matchLabels", selector)
            if document["kind"] in ("Service", "PodDisruptionBudget", "StatefulSet"):
                self.assertEqual(labels, {"app": "bulkhead"}, path)
            if document["kind"] == "StatefulSet":
                self.assertEqual(spec["template"]["metadata"]["labels"], labels, path)
            if document["kind"] == "HorizontalPodAutoscaler":
                self.assertEqual(spec["scaleTargetRef"]["kind"], "StatefulSet")

    def test_mpirun_gets_into_workers_whose_ssh_folder_is_a_read_only_secret(self):
        (group,) = [document for _, document in documents() if document["kind"] == "LeaderWorkerSet"]
        (leader,), (worker,) = (group["spec"]["leaderWorkerTemplate"][role]["spec"]["containers"]
                                for role in ("leaderTemplate", "workerTemplate"))
        for container in (leader, worker):
            (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "ssh"]
            self.assertEqual((mount["mountPath"], mount["readOnly"]), ("/root/.ssh", True))
        options = re.search(r'OMPI_MCA_plm_rsh_args="(.*?)"', leader["args"][0]).group(1)
        self.assertEqual(options.split(), ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=5"])
        self.assertIn("until ssh $OMPI_MCA_plm_rsh_args ", leader["args"][0])
        self.assertRegex(leader["args"][0], r"export [^;]*OMPI_MCA_orte_keep_fqdn_hostnames=1;")
        for needed in ("mkdir -p /run/sshd", "ssh-keygen -A", "sshd -D -e -o StrictModes=no"):
            self.assertIn(needed, worker["args"][0])

    def test_workers_live_on_while_the_leader_drains(self):
        (group,) = [document for _, document in documents() if document["kind"] == "LeaderWorkerSet"]
        leader, worker = (group["spec"]["leaderWorkerTemplate"][role]["spec"] for role in ("leaderTemplate", "workerTemplate"))
        self.assertEqual(worker.get("terminationGracePeriodSeconds"), leader["terminationGracePeriodSeconds"])
        (container,) = worker["containers"]
        self.assertIn("orted", container["lifecycle"]["preStop"]["exec"]["command"][2])

    def test_every_mounted_volume_is_there(self):
        for path, document in documents():
            for pod in pods(document):
                volumes = {volume["name"] for volume in pod["volumes"]}
                for container in pod["containers"]:
                    self.assertEqual({mount["name"] for mount in container["volumeMounts"]} - volumes, set(), path)


class RunbookTest(unittest.TestCase):
    def test_every_alert_and_metric_that_it_names_exists(self):
        with open(os.path.join(DEPLOY, "prometheus", "bulkhead.rules.yml"), encoding="utf-8") as file:
            alerts = set(re.findall(r"alert: (\w+)", file.read()))
        with open(os.path.join(SOURCE, "docs", "metrics.md"), encoding="utf-8") as file:
            metrics = set(re.findall(r"`(bulkhead_\w+)`", file.read()))
        for path in ("docs/runbook.md", "deploy/kubernetes/pools.md"):
            with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
                text = file.read()
            self.assertEqual(set(re.findall(r"alert `(\w+)`", text)) - alerts, set(), path)
            self.assertEqual(set(re.findall(r"`(bulkhead_\w+)`", text)) - metrics, set(), path)


class BindingTest(unittest.TestCase):
    """What deploy/mpirun.md says of cores."""

    def threads_of(self, launcher, *flags):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run(["mpirun", *launcher, "-n", "1", PROGRAM, "run", "--model",
                               os.path.join(SOURCE, "examples", "models", "sample"), "--device-memory", "120MiB",
                               "--prompts", "-", *flags], input='{"prompt_token_ids": [1], "max_tokens": 1}\n',
                              capture_output=True, text=True, timeout=120, env=environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(re.search(r"1 rank x (\d+) threads", done.stderr).group(1))

    def test_what_mpirun_binds_unasked_is_undone_and_what_was_asked_for_stands(self):
        unbound = self.threads_of(["--bind-to", "none"])
        if unbound < 2:
            self.skipTest("one core alone")
        self.assertEqual(self.threads_of([]), unbound)
        self.assertEqual(self.threads_of(["--map-by", "ppr:1:node"]), unbound)
        self.assertEqual(self.threads_of(["--bind-to", "core"]), 1)
        self.assertEqual(self.threads_of(["--map-by", "ppr:1:node:PE=1"]), 1)
        self.assertEqual(self.threads_of([], "--numa", "off"), 1)


class ContainerfileTest(unittest.TestCase):
    def test_what_stops_a_container_drains_a_group_too(self):
        with open(os.path.join(DEPLOY, "Containerfile"), encoding="utf-8") as file:
            self.assertIn("\nSTOPSIGNAL SIGUSR1\n", file.read())


class UnitFileTest(unittest.TestCase):
    def test_it_starts_serve_with_flags_that_it_takes(self):
        with open(os.path.join(DEPLOY, "systemd", "bulkhead.service"), encoding="utf-8") as file:
            lines = dict(line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#"))
        words = shlex.split(lines["ExecStart"])
        self.assertEqual(words[:2], ["bulkhead", "serve"])
        flags = [word for word in words[2:] if word not in ("--config", "/etc/bulkhead.toml")]
        self.assertEqual(accepts("--model", "DIR", *flags), "")
        self.assertIn("RestartPreventExitStatus", lines)
        # A run-time folder would go with the server whose end the report is of.
        report = flags[flags.index("--report") + 1]
        self.assertEqual(os.path.dirname(report), "/var/lib/" + lines["StateDirectory"])
        # A drain of one rank (tests/e2e/life_test.py) and of mpirun, which alone gets it.
        self.assertEqual((lines["KillSignal"], lines["KillMode"]), ("SIGUSR1", "mixed"))
        # Where starts wait for one another, despite ProtectSystem and PrivateTmp.
        self.assertEqual(lines["ReadWritePaths"].lstrip("-"), "/run/lock")


if __name__ == "__main__":
    unittest.main()
