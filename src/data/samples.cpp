// Samples of a token file, and the order of training samples.
#include <trireme/data/samples.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/data/batch.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::data {
namespace {

std::int64_t windows_in(const TokenSource& file, std::int64_t sequence) {
  check_usage(sequence >= 1, "sequence = ", sequence, ", expected at least 1");
  check_usage(file.tokens() > sequence, file.path(), " has ", file.tokens(),
              " tokens, but a sample of [model] sequence = ", sequence, " needs ", sequence + 1,
              "; choose a shorter sequence or tokenize more text");
  return (file.tokens() - 1) / sequence;
}

void expect_rows(std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                 std::span<std::int32_t> positions, std::int64_t count, std::int64_t sequence) {
  check(count >= 0 && std::ssize(inputs) == count * sequence &&
            std::ssize(targets) == count * sequence &&
            (positions.empty() || positions.size() == inputs.size()),
        "room for ", inputs.size(), " inputs, ", targets.size(), " targets and ", positions.size(),
        " positions, expected ", count, " x ", sequence);
}

// Distance of the files' seeds, so that files of equal size have different orders.
constexpr std::uint64_t seed_distance = 0x9E3779B97F4A7C15u;

std::vector<double> weights_of(std::span<const WeightedSource> files) {
  std::vector<double> weights;
  for (const auto& part : files) weights.push_back(part.weight);
  return weights;
}

}  // namespace

void count_up(std::span<std::int32_t> positions, std::int64_t sequence) {
  for (std::size_t i = 0; i < positions.size(); ++i)
    positions[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(sequence));
}

SampleForm::SampleForm(const deck::ModelConfig& m)
    : SampleForm(m.text_tokens(), m.packing, m.reads_pairs() ? m.encoder.sequence : 0) {
  vision = m.vision;
}

Windows::Windows(const TokenSource& file, const SampleForm& form)
    : file_(file), sequence_(form.sequence) {
  check_usage(form.vision.present() || !file.images(), file.path(),
              ": has images, which this model does not see; set [vision] layers, or tokenize the "
              "texts without images");
  if (form.vision.present())
    documents_ = std::make_shared<ImageDocuments>(file, form.vision, form.sequence);
  else if (form.source > 0)
    pairs_ = std::make_shared<PackedPairs>(file, form.source, form.sequence, form.packing);
  else if (form.packing != Packing::none)
    packed_ = std::make_shared<PackedDocuments>(file, form.sequence);
  count_ = documents_ ? documents_->samples()
           : pairs_   ? pairs_->samples()
           : packed_  ? packed_->samples()
                      : windows_in(file, form.sequence);
}

void Windows::read(std::int64_t window, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets, std::span<std::int32_t> positions) const {
  const bool reads = !pairs_ && !documents_;
  check(window >= 0 && window < count_ && reads, file_.path(), ": window ", window, " of ",
        reads ? count_ : 0);
  expect_rows(inputs, targets, positions, 1, sequence_);
  if (packed_) return read_packed(window, inputs, targets, positions);
  count_up(positions, sequence_);
  file_.read(window * sequence_, inputs);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  file_.read((window + 1) * sequence_, targets.last(1));
  file_.mask(window * sequence_ + 1, targets);
}

void Windows::read_packed(std::int64_t sample, std::span<std::int32_t> inputs,
                          std::span<std::int32_t> targets,
                          std::span<std::int32_t> positions) const {
  std::ranges::fill(inputs, 0);
  std::ranges::fill(targets, uncounted);
  std::ranges::fill(positions, 0);
  std::vector<std::int32_t> tokens;
  std::size_t begin = 0;
  for (std::int64_t i = 0; i < packed_->pieces(sample); ++i) {
    const auto [first, length] = packed_->piece(sample, i);
    const auto count = static_cast<std::size_t>(length);
    tokens.resize(count + 1);
    file_.read(first, tokens);
    std::copy_n(tokens.begin(), count, inputs.begin() + static_cast<std::ptrdiff_t>(begin));
    const auto wanted = targets.subspan(begin, count);
    std::copy_n(tokens.begin() + 1, count, wanted.begin());
    file_.mask(first + 1, wanted);
    if (!positions.empty()) count_up(positions.subspan(begin, count), length);
    begin += count;
  }
}

std::int64_t Windows::tokens(std::int64_t window) const {
  if (documents_) return documents_->tokens(window);
  if (!packed_) return sequence_;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < packed_->pieces(window); ++i) sum += packed_->piece(window, i).count;
  return sum;
}

std::int64_t Windows::counted(std::int64_t window) const {
  if (documents_) return documents_->counted(window);
  if (pairs_) return pairs_->counted(window);
  if (packed_) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < packed_->pieces(window); ++i) {
      const auto [first, count] = packed_->piece(window, i);
      sum += file_.counted(first + 1, count);
    }
    return sum;
  }
  return file_.counted(window * sequence_ + 1, sequence_);
}

void Windows::read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets, std::span<std::int32_t> positions) const {
  expect_rows(inputs, targets, positions, count, sequence_);
  for (std::int64_t i = 0; i < count; ++i)
    read(first + i, row(inputs, i, sequence_), row(targets, i, sequence_),
         row(positions, i, sequence_));
}

Samples::Samples(const TokenSource& file, const SampleForm& form, std::uint64_t seed)
    : Samples(std::array{WeightedSource{&file, 1}}, form, seed) {}

Samples::Samples(std::span<const WeightedSource> files, const SampleForm& form, std::uint64_t seed)
    : blend_(weights_of(files)), seed_(seed) {
  for (const auto& part : files) windows_.emplace_back(*part.file, form);
}

Samples::Place Samples::place(std::int64_t sample) const {
  check(sample >= 0, "sample ", sample, ", expected at least 0");
  const auto [file, number] = blend_.place(sample);
  const std::int64_t windows = per_epoch(file);
  const std::uint64_t seed = seed_ + file * seed_distance;
  const auto epoch = static_cast<std::uint32_t>(number / windows);
  return {file, Permutation(windows, seed, epoch)(number % windows)};
}

bool Samples::all_count() const {
  return std::ranges::all_of(windows_, &Windows::all_count);
}

std::int64_t Samples::counted(std::int64_t first_sample, std::int64_t count) const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = place(first_sample + i);
    sum += windows_[file].counted(window);
  }
  return sum;
}

std::int64_t Samples::tokens(std::int64_t first_sample, std::int64_t count) const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = place(first_sample + i);
    sum += windows_[file].tokens(window);
  }
  return sum;
}

void Samples::read(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets, std::span<std::int32_t> positions) const {
  expect_rows(inputs, targets, positions, count, sequence());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = place(first_sample + i);
    windows_[file].read(window, row(inputs, i, sequence()), row(targets, i, sequence()),
                        row(positions, i, sequence()));
  }
}

namespace {

constexpr std::uint32_t rounds = 8;
constexpr std::int64_t size_limit = std::int64_t{1} << 60;

std::uint64_t side_of_square(std::int64_t n) {
  auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (side * side < static_cast<std::uint64_t>(n)) ++side;
  return side;
}

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint32_t epoch)
    : n_(n), side_(1), seed_(seed), epoch_(epoch) {
  check(n >= 1 && n <= size_limit, "a permutation of ", n, " numbers, expected 1 to ", size_limit);
  side_ = side_of_square(n);
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  check(index >= 0 && index < n_, "index ", index, " of a permutation of ", n_);
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value / side_;
    std::uint64_t right = value % side_;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const Words4 words = philox({seed_, Purpose::shuffle, round, epoch_}, right);
      const std::uint64_t random = (std::uint64_t{words.w[1]} << 32) | words.w[0];
      const std::uint64_t sum = (left + random % side_) % side_;
      left = right;
      right = sum;
    }
    value = left * side_ + right;
  } while (value >= static_cast<std::uint64_t>(n_));
  return static_cast<std::int64_t>(value);
}

}  // namespace trireme::data
