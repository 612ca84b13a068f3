#include <trireme/checkpoint/attempt.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <charconv>
#include <filesystem>
#include <random>
#include <system_error>

namespace trireme::checkpoint {
namespace {

constexpr std::size_t run_digits = 16;
constexpr std::int64_t largest_stride = 1'000'000;

std::string new_run() {
  std::random_device random;
  std::string digits;
  while (digits.size() < run_digits) digits += "0123456789abcdef"[random() % 16];
  return digits;
}

}  // namespace

std::optional<std::int64_t> parse_count(std::string_view digits) {
  std::int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc{} || at != end || number < 0 || text(number) != digits)
    return std::nullopt;
  return number;
}

std::optional<Attempt> read_attempt(const std::string& directory) {
  const std::string path = directory + "/" + attempt_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::string content;
  try {
    content = io::read_text_file(path, 256);
  } catch (const UsageError& failure) {
    throw Error(failure.what());
  }
  const std::string run = content.substr(0, content.find(' '));
  std::optional<std::int64_t> number;
  if (content.size() > run.size() && content.ends_with('\n'))
    number = parse_count(
        std::string_view(content).substr(run.size() + 1, content.size() - run.size() - 2));
  check(run.size() == run_digits && number &&
            run.find_first_not_of("0123456789abcdef") == std::string::npos,
        path, ": does not name a run's attempt; its local checkpoints are not used");
  return Attempt{run, *number};
}

Attempt begin_attempt(const std::string& directory) {
  Attempt next{new_run(), 1};
  try {
    if (const auto former = read_attempt(directory)) {
      std::random_device random;
      next = {former->run, former->number + 1 + random() % largest_stride};
    }
  } catch (const Error&) {  // damaged: its names are then not used again
  }
  io::replace_file(directory + "/" + attempt_name, text(next.run, ' ', next.number, '\n'));
  return next;
}

}  // namespace trireme::checkpoint
