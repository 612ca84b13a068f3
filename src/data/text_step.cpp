#include <trireme/data/text_step.hpp>

#include <trireme/base/check.hpp>

namespace trireme::data {

void limit_held(std::string_view held) {
  check_usage(held.size() <= held_limit_bytes, "the text has a word of more than ",
              human_bytes(held_limit_bytes), " by the tokenizer's rules, beginning '",
              held.substr(0, 40), "'; give a text file");
}

/// A step, and the text that the step has not consumed.
class TextChain::Stage final : public TextSink {
 public:
  Stage(std::unique_ptr<TextStep> step, TextSink& out) : step_(std::move(step)), out_(out) {}

  void piece(std::string_view text, bool last) override {
    if (held_.empty()) {
      const std::size_t used = run(text, last);
      if (!last) hold(text.substr(used));
      return;
    }
    held_ += text;
    if (!last && held_.size() < wait_) return;
    const std::size_t used = run(held_, last);
    held_.erase(0, last ? held_.size() : used);
    if (!last) hold({});
  }

  void set_origin(bool origin) { origin_ = origin; }

 private:
  std::size_t run(std::string_view text, bool last) {
    const std::size_t used = step_->run(text, {first_, last, origin_}, out_);
    first_ = last || (first_ && used == 0);
    if (last) origin_ = false;
    return used;
  }
  void hold(std::string_view rest) {
    held_ += rest;
    limit_held(held_);
    wait_ = held_.size() + held_.size() / 2;
  }

  std::unique_ptr<TextStep> step_;
  TextSink& out_;
  std::string held_;
  std::size_t wait_ = 0;  // number of held bytes at which the step runs again
  bool first_ = true;
  bool origin_ = false;
};

TextChain::TextChain(const TextSteps& steps, TextSink& out) : out_(out) {
  TextSink* next = &out;
  for (std::size_t i = steps.size(); i-- > 0;) {
    stages_.insert(stages_.begin(), std::make_unique<Stage>(steps[i]->copy(), *next));
    next = stages_.front().get();
  }
}

TextChain::~TextChain() = default;

void TextChain::set_origin(bool origin) {
  if (!stages_.empty()) stages_.front()->set_origin(origin);
}

void TextChain::piece(std::string_view text, bool last) {
  if (stages_.empty()) return out_.piece(text, last);
  stages_.front()->piece(text, last);
}

std::string run_steps(const TextSteps& steps, std::string_view text) {
  struct Collector final : TextSink {
    std::string all;
    void piece(std::string_view part, bool) override { all += part; }
  } out;
  TextChain(steps, out).piece(text, true);
  return out.all;
}

}  // namespace trireme::data
