#pragma once

#include <trireme/train/generator.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

/// Samples and greedy texts of the goldens of T5.
namespace trireme::train {

/// A line "SOURCE | TARGETS | LOSS" of tests/golden/t5_hugging_face.
struct SpanSample {
  std::vector<std::int32_t> source, targets;
  double loss = 0;
};

inline std::vector<SpanSample> read_span_samples(const std::string& path) {
  std::vector<SpanSample> samples;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    SpanSample sample;
    std::istringstream words(line);
    std::string word;
    while (words >> word && word != "|") sample.source.push_back(std::stoi(word));
    while (words >> word && word != "|") sample.targets.push_back(std::stoi(word));
    words >> sample.loss;
    samples.push_back(sample);
  }
  return samples;
}

/// A source and its greedy text.
struct GreedyText {
  std::vector<std::int32_t> source, text;
};

/// The sources of texts, and their generated tokens.
struct GreedyTexts final : Continuations {
  explicit GreedyTexts(const std::vector<GreedyText>& all)
      : texts(all), found(all.size()), ended(all.size()) {}

  std::size_t count() const override { return texts.size(); }
  std::vector<std::int32_t> begin(std::size_t i) override { return texts[i].source; }
  std::uint32_t sample(std::size_t i) const override { return static_cast<std::uint32_t>(i); }
  bool take(std::size_t i, std::int32_t token) override {
    found[i].push_back(token);
    return true;
  }
  void end(std::size_t i) override { ++ended[i]; }

  const std::vector<GreedyText>& texts;
  std::vector<std::vector<std::int32_t>> found;
  std::vector<int> ended;
};

}  // namespace trireme::train
