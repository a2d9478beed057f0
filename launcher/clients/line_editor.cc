#include "launcher/clients/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>

#include "absl/strings/string_view.h"
#include "base/check.h"

namespace bulkhead {
namespace {

constexpr int kHistoryLines = 1000;

struct SavedTerminal {
  SavedTerminal() { is_there = tcgetattr(STDIN_FILENO, &mode) == 0; }
  termios mode = {};
  bool is_there = false;
};

const SavedTerminal& Saved() {
  static const SavedTerminal saved;
  return saved;
}

// libedit decodes characters by the locale; a service's shell often has none.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (absl::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

class LineEditor::Impl {
 public:
  Impl() {
    UseUtf8();
    Saved();
    line_ = el_init("bulkhead", stdin, stdout, stderr);
    history_ = history_init();
    BH_CHECK(line_ != nullptr && history_ != nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(line_, EL_CLIENTDATA, this);
    el_set(line_, EL_PROMPT, &Impl::Prompt);
    el_set(line_, EL_EDITOR, "emacs");
    el_set(line_, EL_HIST, history, history_);
    el_set(line_, EL_SIGNAL, 1);  // follows the window's size
    // While a line is read, Ctrl-C is a key like others.
    el_set(line_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(line_, EL_ADDFN, "bulkhead-interrupt", "Drop the line", &Impl::Interrupt);
    el_set(line_, EL_BIND, "^C", "bulkhead-interrupt", nullptr);
    el_set(line_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // What a Ctrl-D typed during an answer becomes; otherwise it would quote the next key.
    el_set(line_, EL_BIND, "^@", "em-set-mark", nullptr);
  }
  ~Impl() {
    history_end(history_);
    el_end(line_);
  }

  LineEditor::End Read(const std::string& prompt, std::string* line) {
    prompt_ = prompt;
    interrupted_ = false;
    int count = 0;
    const char* const text = el_gets(line_, &count);
    if (interrupted_) return LineEditor::End::kInterrupted;
    if (text == nullptr || count <= 0) return LineEditor::End::kEnd;
    line->assign(text, static_cast<size_t>(count));
    if (!line->empty() && line->back() == '\n') line->pop_back();
    return LineEditor::End::kLine;
  }

  void Remember(const std::string& line) {
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  static Impl* Of(EditLine* line) {
    void* impl = nullptr;
    el_get(line, EL_CLIENTDATA, &impl);
    return static_cast<Impl*>(impl);
  }
  static char* Prompt(EditLine* line) { return Of(line)->prompt_.data(); }
  static unsigned char Interrupt(EditLine* line, int) {
    Of(line)->interrupted_ = true;
    return CC_EOF;
  }

  EditLine* line_;
  History* history_;
  std::string prompt_;
  bool interrupted_ = false;
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {}
LineEditor::~LineEditor() = default;

LineEditor::End LineEditor::Read(const std::string& prompt, std::string* line) {
  return impl_->Read(prompt, line);
}

void LineEditor::Remember(const std::string& line) { impl_->Remember(line); }

void LineEditor::RestoreTerminal() {
  if (Saved().is_there) tcsetattr(STDIN_FILENO, TCSANOW, &Saved().mode);
}

}  // namespace bulkhead
