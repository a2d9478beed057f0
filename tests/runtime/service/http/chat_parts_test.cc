#include "runtime/service/http/chat_parts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace bulkhead {
namespace {

bool TakesTools(const std::string& text) {
  auto parsed = ChatTemplate::Parse(text, "a test");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  auto parts = MakeChatParts(*std::move(parsed), "auto", "auto");
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts->takes_tools;
}

TEST(ChatPartsTest, ATemplateThatLooksForToolsInMessagesTakesNoneOfARequest) {
  const std::string own =
      "{% for message in messages %}{% if 'tools' in message and message['tools'] is not none %}"
      "{{ message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' }}{% else %}"
      "{{ message['content'] }}{% endif %}{% endfor %}";
  EXPECT_FALSE(TakesTools(own));
  EXPECT_TRUE(TakesTools("{% if tools %}{{ tools | tojson }}{% endif %}" + own));
  EXPECT_FALSE(TakesTools("{{ messages[0].content }}"));
}

}  // namespace
}  // namespace bulkhead
