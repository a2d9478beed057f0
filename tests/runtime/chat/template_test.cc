#include "runtime/chat/jinja/template.h"

#include <sys/resource.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/ordered_json.h"

namespace bulkhead::jinja {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::string> Rendered(const std::string& text,
                                     const ordered_json& context = ordered_json::object(),
                                     const Limits& limits = {}) {
  const auto parsed = Template::Parse(text, "t.jinja");
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(context, limits);
}

std::string Error(const std::string& text, const Limits& limits = {}) {
  const absl::StatusOr<std::string> rendered = Rendered(text, ordered_json::object(), limits);
  EXPECT_FALSE(rendered.ok()) << text << " gave " << rendered.value_or("");
  return rendered.ok() ? "" : rendered.status().ToString();
}

TEST(Template, RendersEveryPublishedCaseExactly) {
  std::ifstream file(absl::StrCat(BH_TEST_DATA, "/chat/cases.jsonl"));
  absl::flat_hash_map<std::string, std::shared_ptr<const Template>> templates;
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    ordered_json entry = *ParseOrderedJsonObject(line, "cases.jsonl");
    const std::string name = entry["template"];
    if (entry.contains("source")) {
      templates[name] = *Template::Parse(entry["source"].get<std::string>(), name);
      continue;
    }
    const absl::StatusOr<std::string> text = templates.at(name)->Render(entry);
    if (entry.contains("error")) {
      ASSERT_FALSE(text.ok()) << line;
      EXPECT_EQ(std::string(text.status().message()), entry["error"].get<std::string>());
    } else {
      ASSERT_TRUE(text.ok()) << text.status() << line;
      EXPECT_EQ(*text, entry["rendered"].get<std::string>());
    }
    ++cases;
  }
  EXPECT_GT(cases, 50);
}

TEST(Template, NamesTheLineAndTheReasonOfWhatDoesNotParse) {
  EXPECT_THAT(Error("a\n{% if x %}\nb"), AllOf(HasSubstr("t.jinja: line 3"), HasSubstr("endif")));
  EXPECT_THAT(Error("\n\n{{ x ! }}"), AllOf(HasSubstr("line 3"), HasSubstr("'!'")));
  EXPECT_THAT(Error("{{ x | nope }}"), HasSubstr("'nope'"));
  EXPECT_THAT(Error("{{ 'a"), HasSubstr("string without its end"));
  EXPECT_THAT(Error("{{ 99999999999999999999 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(Error("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(Error(std::string(kMaxTemplateBytes + 1, 'a')),
              HasSubstr(absl::StrCat(kMaxTemplateBytes)));
}

TEST(Template, RefusesWhatItLeavesOutByName) {
  for (const std::string tag : {"block x", "extends 'x'", "include 'x'", "import 'x' as y",
                                "from 'x' import y", "autoescape true", "trans", "do x"}) {
    EXPECT_THAT(Error(absl::StrCat("{% ", tag, " %}")),
                AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr(tag.substr(0, tag.find(' ')))));
  }
  EXPECT_THAT(Error("{{ x | urlize }}"), AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("urlize")));
  EXPECT_THAT(Error("{{ 'a{}'.format(1) }}"),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("'format'")));
}

TEST(Template, NamesTheLineOfAnErrorButGivesARaisedMessageAlone) {
  EXPECT_THAT(Error("a\n\n{{ x.y }}"), HasSubstr("t.jinja: line 3: 'x' is undefined"));
  EXPECT_EQ(Error("\n{{ raise_exception('No ' ~ 1) }}"), "INVALID_ARGUMENT: No 1");
}

TEST(Template, EndsAtEachLimitWithItsName) {
  const std::string loop = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}";
  EXPECT_THAT(Error(loop + "{% endfor %}{% endfor %}", {.max_steps = 100'000}),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("max_steps")));
  EXPECT_THAT(Error(loop + "{% endfor %}{% endfor %}", {.max_output_bytes = 5000}),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("max_output_bytes")));
  EXPECT_THAT(Error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("max_depth")));
  for (const std::string text :
       {"{{ 'abcdefgh' * 1000000000 }}", "{{ [1] * 1000000000 }}", "{{ 'a'.center(10000000000) }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
        "endfor %}",
        "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
        "{{ ('a\\n' * 1000000) | indent(10000) }}",
        "{{ (('a,' * 100000).split(',')) | join('b' * 100000) }}",
        "{% set x %}{{ 'a' * 60000000 }}{% endset %}{{ x ~ x }}"}) {
    EXPECT_THAT(Error(text), HasSubstr("RESOURCE_EXHAUSTED")) << text;
  }
  EXPECT_THAT(Error("{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l] "
                    "%}{% endfor %}"),
              HasSubstr("deeper than"));
  // Small to hold, endless to print.
  EXPECT_THAT(
      Error("{% set ns = namespace(l=[1]) %}{% for i in range(70) %}{% set ns.l = [ns.l, ns.l] %}"
            "{% endfor %}{{ ns.l }}"),
      HasSubstr("RESOURCE_EXHAUSTED"));
}

// A step may handle a text of any size: its bytes are steps, too.
TEST(Template, CountsTheBytesOfWhatItHandles) {
  const std::string begin =
      "{% set s = 'ab' * 500000 %}{% set t = s ~ 'a' %}{% set u = s ~ 'b' %}"
      "{% set d = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9} %}"
      "{% for i in range(2000) %}{% set x = ";
  for (const std::string expression :
       {"s.removeprefix('x')", "s.partition('bb')", "'x'.startswith(s)", "s | truncate(999990)",
        "d[s]", "{s: 1}", "s in d", "t < u", "t == u", "[s] | unique(true) | list"}) {
    EXPECT_THAT(Error(begin + expression + " %}{% endfor %}", {.max_steps = 1'000'000}),
                HasSubstr("max_steps"))
        << expression;
  }
}

TEST(Template, CountsTheBytesOfWhatIsUndefined) {
  EXPECT_THAT(Error("{% set ns = namespace(l=[]) %}{% set s = 'a' * 1000000 %}{% for i in range(50)"
                    " %}{% set ns.l = ns.l + [{}[s ~ i]] %}{% endfor %}",
                    {.max_value_bytes = 8 << 20}),
              HasSubstr("max_value_bytes"));
}

TEST(Template, HoldsNoMorePartsOfATextThanItsLimitHasRoomFor) {
  const auto peak_bytes = [] {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{1024} * usage.ru_maxrss;
  };
  const std::string text = "{% set s = '\n' * 20000000 %}{{ s";
  const int64_t before = peak_bytes();
  for (const std::string cut : {".split('\n')", ".rsplit('\n')", ".splitlines()", " | indent(0)",
                                ".replace('\n', 'a ').split()"}) {
    EXPECT_THAT(Error(text + cut + " | length }}"), HasSubstr("max_value_bytes")) << cut;
  }
  EXPECT_LT(peak_bytes() - before, int64_t{400} << 20);
}

TEST(Template, RefusesTemplatesThatNestTooDeeply) {
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const std::string& text :
       {"{{ " + times(100000, "(") + " }}", "{{ " + times(100000, "-") + "1 }}",
        "{{ " + times(100000, "not ") + "1 }}", "{{ 1" + times(100000, " + 1") + " }}",
        "{{ x" + times(100000, ".x") + " }}", "{{ x" + times(100000, " | trim") + " }}",
        times(100000, "{% if x %}"), "{% set " + times(100000, "(") + " = 1 %}",
        "{{ " + times(100000, "1 if 1 else ") + "1 }}"}) {
    EXPECT_FALSE(Rendered(text).ok()) << text.substr(0, 40);
  }
  std::string many = "{% if a %}";
  for (int i = 0; i < 20000; ++i) many += "{% elif a %}";
  EXPECT_EQ(*Rendered(many + "{% else %}b{% endif %}"), "b");
}

TEST(Template, SurvivesValuesThatHoldThemselves) {
  EXPECT_EQ(*Rendered("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}ok"),
            "ok");
  EXPECT_THAT(Error("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"), HasSubstr("line 1"));
  EXPECT_EQ(*Rendered("{% set ns = namespace(v=0) %}{% for i in range(50000) %}{% set x = ns.v "
                      "%}{% for j in [1] %}"
                      "{% set ns.v = [loop] %}{% endfor %}{% endfor %}ok"),
            "ok");
  EXPECT_EQ(*Rendered("{% set ns = namespace(v=0) %}{% for i in range(50000) %}{% set x = ns.v "
                      "%}{% macro m() %}{{ x }}"
                      "{% endmacro %}{% set ns.v = [m] %}{% endfor %}ok"),
            "ok");
  EXPECT_FALSE(Rendered("{% set ns = namespace(v=[]) %}{% for i in range(50000) %}{% set ns.v = "
                        "[ns.v.index] %}{% endfor %}ok")
                   .ok());
  EXPECT_FALSE(Rendered("{% set ns = namespace(v=1) %}{% for i in range(50000) %}{% set ns.v = "
                        "cycler(ns.v) %}{% endfor %}ok")
                   .ok());
}

TEST(Template, RendersFromSeveralThreadsAtOnce) {
  const auto parsed = *Template::Parse(
      "{% for m in messages %}{{ loop.index }}{{ m.role | upper }}{{ cycler('a', 'b').next() }}"
      "{% set ns = namespace(x=m) %}{{ ns.x | tojson }}{% endfor %}",
      "t");
  const ordered_json context = {{"messages", {{{"role", "user"}}, {{"role", "tool"}}}}};
  const std::string expected = *parsed->Render(context);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(*parsed->Render(context), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Template, KeepsTheOrderOfKeys) {
  EXPECT_EQ(*Rendered("{{ d | tojson }}{{ d }}", {{"d", {{"z", 1}, {"a", 2}}}}),
            "{\"z\": 1, \"a\": 2}{'z': 1, 'a': 2}");
}

TEST(Template, SaysWhetherItReadsPartsOfContent) {
  const auto reads = [](const std::string& text) {
    return (*Template::Parse(text, "t"))->reads_content_parts();
  };
  EXPECT_TRUE(reads(
      "{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}"));
  EXPECT_TRUE(
      reads("{% for m in messages %}{% for p in m.content | list %}{% endfor %}{% endfor %}"));
  EXPECT_TRUE(reads("{% set c = m['content'] %}{% for p in c %}{% endfor %}"));
  EXPECT_FALSE(reads("{% for m in messages %}{{ m.content }}{% endfor %}"));
}

TEST(Template, TellsTheTimeInTheFormatAskedFor) {
  const auto parsed = *Template::Parse("{{ strftime_now('%d %b %Y') }}", "t");
  const absl::Time time = absl::FromCivil(absl::CivilDay(2026, 7, 4), absl::LocalTimeZone());
  EXPECT_EQ(*parsed->Render(ordered_json::object(), {}, time), "04 Jul 2026");
}

}  // namespace
}  // namespace bulkhead::jinja
