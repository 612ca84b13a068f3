// Names of temporary files, and removal of the files that killed processes have left.
#include <trireme/io/temporaries.hpp>

#include <trireme/base/checksum.hpp>
#include <trireme/base/folder_entries.hpp>
#include <trireme/base/process.hpp>
#include <trireme/base/text.hpp>

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view mark = ".partial-";
constexpr std::size_t tag_digits = 8;
constexpr auto longest_write = std::chrono::hours(24);

std::string system_tag() {
  const ProcessIdentity mine = this_process();
  const std::string words = mine.host + " " + mine.system;
  return checksum(words.data(), words.size()).hex().substr(0, tag_digits);
}

struct Maker {
  std::string system;
  std::int64_t process = 0;
};

/// The process that made a temporary file; std::nullopt for other names.
std::optional<Maker> maker_of(std::string_view name) {
  const auto at = name.rfind(mark);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  name.remove_prefix(at + mark.size());
  if (name.size() < tag_digits + 4 || name[tag_digits] != '-') return std::nullopt;
  const std::string_view tag = name.substr(0, tag_digits);
  if (tag.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  Maker maker{std::string(tag), 0};
  const char* end = name.data() + name.size();
  const auto [dash, error] = std::from_chars(name.data() + tag_digits + 1, end, maker.process);
  int number = 0;
  if (error != std::errc() || dash == end || *dash != '-') return std::nullopt;
  const auto [last, bad] = std::from_chars(dash + 1, end, number);
  return bad == std::errc() && last == end ? std::optional(maker) : std::nullopt;
}

bool is_dead(const Maker& maker, const fs::directory_entry& entry) {
  if (maker.system == system_tag()) {
    ProcessIdentity process = this_process();
    process.process = maker.process;
    process.started = 0;
    return life_of(process) == Life::dead;
  }
  std::error_code error;
  const auto changed = fs::last_write_time(entry.path(), error);
  return !error && fs::file_time_type::clock::now() - changed > longest_write;
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<int> counter{0};
  return text(path, mark, system_tag(), "-", ::getpid(), "-", counter.fetch_add(1));
}

void remove_dead_temporaries(const std::string& folder) {
  std::vector<fs::path> dead;
  std::error_code error;
  for (const auto& entry : readable_entries_of(folder))
    if (const auto maker = maker_of(entry.path().filename().native());
        maker && is_dead(*maker, entry))
      dead.push_back(entry.path());
  for (const fs::path& path : dead) fs::remove_all(path, error);
}

void remove_dead_temporaries_once(const std::string& folder) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  if (folder.ends_with(".partial")) return;
  {
    const std::lock_guard lock(mutex);
    if (!seen.insert(folder).second) return;
  }
  remove_dead_temporaries(folder);
}

}  // namespace trireme::io
