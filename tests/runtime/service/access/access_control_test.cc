#include "runtime/service/access/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/exit_code.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kWriter[] = "writer-key-0123456789";
constexpr char kReader[] = "reader-key-0123456789";
constexpr char kEvery[] = "every-key-0123456789";

std::string Written(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "access_" + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), 0600);
  return path;
}

AccessControl Keys() {
  return *AccessControl::Read(
      {.api_key_file = Written("keys", std::string("# keys\n\n  generate,control ") + kWriter +
                                           "  \nmetrics\t" + kReader + "\n" + kEvery)});
}

std::string Bearer(const std::string& key) { return "Bearer " + key; }

absl::Status Refusal(const std::string& text) {
  return AccessControl::Read({.api_key_file = Written("refused", text)}).status();
}

TEST(AccessControlTest, IsOpenToAllWithoutKeysAndCertificates) {
  const AccessControl open = *AccessControl::Read({});
  EXPECT_FALSE(open.is_on());
  EXPECT_TRUE(open.Check(kControlRole, "").ok());
}

TEST(AccessControlTest, LetsAKeyDoWhatItsRolesSay) {
  const AccessControl access = Keys();
  EXPECT_EQ(access.Text(), "3 API keys");
  EXPECT_TRUE(access.Check(kGenerateRole, Bearer(kWriter)).ok());
  EXPECT_TRUE(access.Check(kControlRole, Bearer(kWriter)).ok());
  EXPECT_TRUE(access.Check(kMetricsRole, Bearer(kReader)).ok());
  EXPECT_TRUE(access.Check(kMetricsRole, Bearer(kEvery)).ok());
  EXPECT_TRUE(access.Check(kAllRoles, Bearer(kReader)).ok());  // any role
  EXPECT_TRUE(access.Check(kNoRole, "").ok());                 // open
  const absl::Status denied = access.Check(kControlRole, Bearer(kReader));
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(denied), reason::kPermissionDenied);
  EXPECT_THAT(denied.message(), HasSubstr("role control, and the caller has metrics"));
}

TEST(AccessControlTest, RefusesWhatIsNoKeyOfItsWithoutRepeatingIt) {
  const AccessControl access = Keys();
  const std::string almost = std::string(kWriter).substr(1);
  for (const std::string& said :
       {std::string(), Bearer(almost), Bearer(""), std::string(kWriter), "Basic " + almost,
        Bearer(std::string(kWriter) + "x"), Bearer(std::string(4096, 'x'))}) {
    const absl::Status status = access.Check(kGenerateRole, said);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << said;
    EXPECT_EQ(ReasonOf(status), reason::kUnauthenticated);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("0123456789")));
  }
  EXPECT_TRUE(access.Check(kGenerateRole, std::string("bearer  ") + kWriter).ok());
}

TEST(AccessControlTest, RefusesFilesByLineWithoutRepeatingAKey) {
  const auto expect = [](const std::string& text, const std::string& said) {
    const absl::Status status = Refusal(text);
    EXPECT_THAT(status.message(), HasSubstr(said)) << text;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  };
  expect("", "has no key");
  expect("# comment\n", "has no key");
  expect("\ngenerate secret\n", "line 2: the API key has 6 characters");
  expect("wizard secretsecretsecret\n", "line 1: roles are generate, control and metrics");
  expect("generate secretsecretsecret secret\n", "line 1: a line is");
  expect("secretsecretsecre\xc3\xa9t\n", "not printable ASCII");
  expect(std::string(kMaxApiKeyBytes + 1, 'k'), "has 513 characters");
  EXPECT_THAT(AccessControl::Read({.api_key_file = "/nowhere/keys"}).status().message(),
              HasSubstr("/nowhere/keys"));
  EXPECT_THAT(AccessControl::Read({.environment_key = "short"}).status().message(),
              HasSubstr("BULKHEAD_API_KEY"));
}

TEST(AccessControlTest, BoundsTheNumberOfKeys) {
  std::string text;
  for (size_t i = 0; i <= kMaxApiKeys; ++i) text += std::string(kMinApiKeyBytes, 'k') + "\n";
  EXPECT_THAT(Refusal(text).message(), HasSubstr("line 1025: more than 1024"));
}

TEST(AccessControlTest, CertificatesHaveAllRolesUnlessKeysOrAFileSayOtherwise) {
  const AccessControl alone = *AccessControl::Read({.client_certificates = true});
  EXPECT_TRUE(alone.is_on());
  EXPECT_EQ(alone.RolesOfCertificate({"anyone"}), kAllRoles);
  EXPECT_EQ(alone.Check(kControlRole, "").code(), absl::StatusCode::kUnauthenticated);
  const AccessControl with_key =
      *AccessControl::Read({.environment_key = kEvery, .client_certificates = true});
  EXPECT_EQ(with_key.RolesOfCertificate({"anyone"}), kNoRole);
  const AccessControl named = *AccessControl::Read(
      {.client_certificates = true,
       .client_roles_file = Written("roles", "generate a.example\nmetrics spiffe://b\n")});
  EXPECT_EQ(named.RolesOfCertificate({"A", "a.example"}), kGenerateRole);
  EXPECT_EQ(named.RolesOfCertificate({"a.example", "spiffe://b"}), kGenerateRole | kMetricsRole);
  EXPECT_EQ(named.RolesOfCertificate({"c.example"}), kNoRole);
  EXPECT_EQ(named.Check(kControlRole, "", kGenerateRole).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(named.Check(kGenerateRole, "", kGenerateRole).ok());
}

TEST(AccessControlTest, AKeyAddsToTheRolesOfTheCertificate) {
  const AccessControl access = Keys();
  EXPECT_TRUE(access.Check(kMetricsRole, Bearer(kReader), kGenerateRole).ok());
  EXPECT_TRUE(access.Check(kGenerateRole, Bearer(kReader), kGenerateRole).ok());
  EXPECT_EQ(access.Check(kControlRole, Bearer("not-a-key-at-all-0123"), kGenerateRole).code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(AccessControlTest, EveryMethodNeedsARoleButProbes) {
  EXPECT_EQ(NeedOfMethod("/grpc.health.v1.Health/Check"), kNoRole);
  EXPECT_EQ(NeedOfMethod("/vllm.grpc.engine.VllmEngine/HealthCheck"), kNoRole);
  EXPECT_EQ(NeedOfMethod("/vllm.grpc.engine.VllmEngine/Generate"), kGenerateRole);
  EXPECT_EQ(NeedOfMethod("/vllm.grpc.engine.VllmEngine/SubscribeKvEvents"), kControlRole);
  EXPECT_EQ(NeedOfMethod("/bulkhead.v1.Generation/Tokenize"), kGenerateRole);
  EXPECT_EQ(NeedOfMethod("/bulkhead.v1.Control/Drain"), kControlRole);
  EXPECT_EQ(NeedOfMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            kAllRoles);
  EXPECT_EQ(NeedOfMethod(""), kAllRoles);
}

TEST(AccessControlTest, AClientReadsTheFirstKey) {
  EXPECT_EQ(*ReadClientKey(Written("client", std::string("# mine\ncontrol ") + kWriter), nullptr),
            kWriter);
  EXPECT_EQ(*ReadClientKey(std::nullopt, kReader), kReader);
  EXPECT_EQ(*ReadClientKey(std::nullopt, nullptr), "");
  EXPECT_EQ(ExitCodeOf(ReadClientKey(Written("none", "#\n"), kReader).status()), ExitCode::kUsage);
}

}  // namespace
}  // namespace bulkhead
