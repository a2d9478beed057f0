// The flags of serve and its clients for TLS and API keys.
#include "launcher/flags/security_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Args = std::vector<std::string>;

Args With(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const Args kTls = {"--ssl-certfile", "c.pem", "--ssl-keyfile", "k.pem"};
const Args kPublic = {"--host", "0.0.0.0"};

TEST(SecurityFlagsTest, APublicHostNeedsTlsAndAWayToKnowCallersOrInsecure) {
  unsetenv("BULKHEAD_API_KEY");
  EXPECT_THAT(Refusal(Serve(kPublic)),
              AllOf(HasSubstr("traffic is not encrypted"), HasSubstr("callers are not"),
                    HasSubstr("--insecure")));
  EXPECT_THAT(Refusal(Serve(With(kPublic, kTls))),
              AllOf(HasSubstr("callers are not"), Not(HasSubstr("not encrypted"))));
  EXPECT_THAT(Refusal(Serve(With(kPublic, {"--api-key-file", "f"}))),
              AllOf(HasSubstr("not encrypted"), Not(HasSubstr("callers are not"))));
  EXPECT_TRUE(Parsed<ServeOptions>(Serve(With(kPublic, {"--insecure"}))).insecure);
  const Args secure = With(kPublic, kTls);
  EXPECT_EQ(Parsed<ServeOptions>(Serve(With(secure, {"--api-key-file", "f"}))).host, "0.0.0.0");
  EXPECT_EQ(Parsed<ServeOptions>(Serve(With(secure, {"--ssl-ca-certs", "a.pem"}))).host, "0.0.0.0");
  setenv("BULKHEAD_API_KEY", "key", 1);
  const ServeOptions options = Parsed<ServeOptions>(Serve(secure));
  EXPECT_TRUE(options.security.HasAccessControl());
  EXPECT_EQ(options.security.ssl_keyfile, "k.pem");
  unsetenv("BULKHEAD_API_KEY");
}

TEST(SecurityFlagsTest, FlagsThatBelongTogetherAreGivenTogether) {
  EXPECT_THAT(Refusal(Serve({"--ssl-certfile", "c.pem"})), HasSubstr("belong together"));
  EXPECT_THAT(Refusal(Serve({"--ssl-keyfile", "k.pem"})), HasSubstr("belong together"));
  EXPECT_THAT(Refusal(Serve({"--ssl-ca-certs", "a.pem"})), HasSubstr("need TLS"));
  EXPECT_THAT(Refusal(Serve(With(kTls, {"--ssl-client-roles", "r"}))),
              HasSubstr("give --ssl-ca-certs"));
}

TEST(SecurityFlagsTest, ClientsTakeAKeyAndCertificates) {
  const auto drain =
      Parsed<DrainOptions>({"drain", "--api-key-file", "f", "--ssl-ca-certs", "a.pem",
                            "--ssl-certfile", "c.pem", "--ssl-keyfile", "k.pem"});
  EXPECT_EQ(drain.credentials.api_key_file, "f");
  EXPECT_EQ(drain.credentials.ssl_ca_certs, "a.pem");
  EXPECT_EQ(drain.credentials.ssl_certfile, "c.pem");
  EXPECT_EQ(drain.credentials.ssl_keyfile, "k.pem");
}

}  // namespace
}  // namespace bulkhead
