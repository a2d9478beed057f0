"""Generates the stubs from the protocol's .proto files when the package is built; the rest is in pyproject.toml."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.normpath(os.path.join(HERE, "..", "..", "proto"))  # in the source tree, and where it is installed
OWN = ["bulkhead_client/details.proto"]


def generator():
    """The command of grpcio-tools, or else of Debian's protobuf-compiler and protobuf-compiler-grpc."""
    try:
        import grpc_tools.protoc  # noqa: F401
        return [sys.executable, "-m", "grpc_tools.protoc"]
    except ImportError:
        protoc, plugin = shutil.which("protoc"), shutil.which("grpc_python_plugin")
        if protoc is None or plugin is None:
            raise SystemExit("no generator of stubs: install grpcio-tools, or protoc and grpc_python_plugin") from None
        return [protoc, f"--plugin=protoc-gen-grpc_python={plugin}"]


def with_imports(name):
    """The file of the protocol, and those of the protocol that it imports."""
    with open(os.path.join(PROTO, name), encoding="utf-8") as file:
        imported = re.findall(r'(?m)^import (?:public )?"(bulkhead/[^"]+)";', file.read())
    return {name}.union(*(with_imports(each) for each in imported))


def generate(out):
    if not os.path.isdir(os.path.join(PROTO, "bulkhead")):
        raise SystemExit(f"the protocol is not in {PROTO}: build from the source tree, or from share/bulkhead/clients/python")
    names = sorted(with_imports("bulkhead/v1/generation.proto"))
    subprocess.run([*generator(), "-I", PROTO, "-I", HERE, f"--python_out={out}", f"--pyi_out={out}",
                    f"--grpc_python_out={out}", *names, *OWN], check=True, cwd=HERE)


def dependencies():
    """Generated code needs a runtime at least as new as its generator, and says which."""
    with tempfile.TemporaryDirectory() as out:
        generate(out)
        with open(os.path.join(out, "bulkhead", "v1", "generation_pb2.py"), encoding="utf-8") as file:
            protobuf = re.search(r"Protobuf Python Version: ([\d.]+)", file.read())
        with open(os.path.join(out, "bulkhead", "v1", "generation_pb2_grpc.py"), encoding="utf-8") as file:
            grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", file.read())
    return [f"protobuf>={protobuf.group(1) if protobuf else '4.21'}", f"grpcio>={grpc.group(1) if grpc else '1.51'}"]


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        os.makedirs(self.build_lib, exist_ok=True)
        generate(self.build_lib)


setup(packages=["bulkhead_client"], package_data={"bulkhead_client": ["py.typed"]}, install_requires=dependencies(),
      cmdclass={"build_py": BuildWithStubs})
