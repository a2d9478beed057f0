"""Certificates for tests, made by the openssl command: an authority, and what it signs."""
import os
import subprocess


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Authority:
    """`folder`/NAME.pem is its certificate."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        self.certificate, self.key = self.path(f"{name}.pem"), self.path(f"{name}.key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign",
                "-keyout", self.key, "-out", self.certificate)

    def path(self, name):
        return os.path.join(self.folder, name)

    def sign(self, name, alternative="IP:127.0.0.1,DNS:localhost", expired=False):
        """(certificate, key) of a new pair of this name."""
        request, key, certificate = (self.path(f"{name}.{end}") for end in ("csr", "key", "pem"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", key, "-out", request)
        os.chmod(key, 0o600)
        extensions = self.path(f"{name}.ext")
        with open(extensions, "w", encoding="ascii") as f:
            f.write(f"subjectAltName={alternative}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
        signed = ["x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
                  "-extfile", extensions, "-out", certificate]
        try:
            openssl(*signed, "-days", "-1" if expired else "2")
        except subprocess.CalledProcessError:  # from OpenSSL 3.4 on days are not negative
            openssl(*signed, "-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
        return certificate, key
