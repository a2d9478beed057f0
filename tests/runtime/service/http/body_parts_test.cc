#include "runtime/service/http/body_parts.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

// httpx splits a stream of events with splitlines(), which takes more for the end of a line than
// the stream's format does.
TEST(BodyParts, NoTextEndsALineOfAStream) {
  const std::string text =
      "a\xC2\x85"
      "b\xE2\x80\xA8"
      "c\xE2\x80\xA9"
      "d\v\f\x1C\x1D\x1E\xC3\xA9\xE2\x80\xA6\xC2";
  EXPECT_EQ(JsonString(text),
            "\"a\\u0085b\\u2028c\\u2029d\\u000b\\f\\u001c\\u001d\\u001e\xC3\xA9\xE2\x80\xA6\xC2\"");
  const nlohmann::json value = {{"k\xE2\x80\xA8", "\xC2\x85\xC3\xA9"}};
  const std::string json = WithLineEndsEscaped(value.dump());
  EXPECT_EQ(json, "{\"k\\u2028\":\"\\u0085\xC3\xA9\"}");
  EXPECT_EQ(nlohmann::json::parse(json), value);
}

}  // namespace
}  // namespace bulkhead
