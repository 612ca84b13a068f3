#include <trireme/base/check.hpp>
#include <trireme/data/permutation.hpp>
#include <trireme/data/samples.hpp>

#include <algorithm>

namespace trireme::data {
namespace {

std::int64_t windows_in(const TokenFile& file, std::int64_t sequence) {
  check_usage(sequence >= 1, "sequence = ", sequence, ", expected at least 1");
  check_usage(file.tokens() > sequence, file.path(), ": has ", file.tokens(),
              " tokens, one sample of sequence = ", sequence, " needs ", sequence + 1,
              "; choose a shorter [model] sequence or tokenize more text");
  return (file.tokens() - 1) / sequence;
}

/// Row i of a [count, S] array.
std::span<std::int32_t> row(std::span<std::int32_t> array, std::int64_t i, std::int64_t length) {
  return array.subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length));
}

void expect_rows(std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                 std::int64_t count, std::int64_t sequence) {
  check(count >= 0 && std::ssize(inputs) == count * sequence &&
            std::ssize(targets) == count * sequence,
        "room for ", inputs.size(), " inputs and ", targets.size(), " targets, expected ", count,
        " x ", sequence);
}

}  // namespace

Windows::Windows(const TokenFile& file, std::int64_t sequence)
    : file_(file), sequence_(sequence), count_(windows_in(file, sequence)) {}

void Windows::read(std::int64_t window, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) const {
  check(window >= 0 && window < count_, file_.path(), ": window ", window, " of ", count_);
  expect_rows(inputs, targets, 1, sequence_);
  file_.read(window * sequence_, inputs);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  file_.read((window + 1) * sequence_, targets.last(1));
}

void Windows::read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) const {
  expect_rows(inputs, targets, count, sequence_);
  for (std::int64_t i = 0; i < count; ++i)
    read(first + i, row(inputs, i, sequence_), row(targets, i, sequence_));
}

Samples::Samples(const TokenFile& file, std::int64_t sequence, std::uint64_t seed)
    : windows_(file, sequence), seed_(seed) {}

std::int64_t Samples::window_of(std::int64_t sample) const {
  check(sample >= 0, "sample ", sample, ", expected at least 0");
  const auto epoch = static_cast<std::uint32_t>(sample / per_epoch());
  return Permutation(per_epoch(), seed_, epoch)(sample % per_epoch());
}

void Samples::read(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) const {
  expect_rows(inputs, targets, count, sequence());
  for (std::int64_t i = 0; i < count; ++i)
    windows_.read(window_of(first_sample + i), row(inputs, i, sequence()),
                  row(targets, i, sequence()));
}

}  // namespace trireme::data
