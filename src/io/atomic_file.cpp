// Files that are written under a temporary name and renamed, and the output files of commands.
#include <trireme/io/atomic_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/process.hpp>
#include <trireme/base/text.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::io {
namespace {

constexpr std::int64_t page_bytes = 4096;
constexpr std::int64_t flushed_bytes = 8 << 20;  // bytes per write-back request

/// Path of a temporary file, in fixed memory for the signal handler. `used`: the path is complete.
struct Slot {
  std::atomic<bool> used{false};
  std::array<char, PATH_MAX> path{};
};

std::array<Slot, 512> slots;
std::mutex slots_mutex;

extern "C" void remove_and_die(int signal_number) {
  for (const auto& slot : slots)
    if (slot.used.load()) ::unlink(slot.path.data());
  for (const auto& slot : slots)  // empty folders
    if (slot.used.load()) ::rmdir(slot.path.data());
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// The target of a symbolic link, so that replacing the file preserves the link; otherwise `path`.
std::string resolved(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_symlink(path, ignored)) return path;
  const auto target = std::filesystem::weakly_canonical(path, ignored);
  return ignored ? path : target.string();
}

bool is_full(int error) {
  return error == ENOSPC || error == EDQUOT;
}

/// Bytes that an ordinary user can still write; -1 if unknown.
std::int64_t free_bytes(int descriptor) {
  struct statvfs status {};
  if (::fstatvfs(descriptor, &status) != 0) return -1;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

/// Reason why a write failed, with a remedy. `needed`: size of the whole file; 0 if unknown.
std::string why_not_written(int error, int descriptor = -1, std::int64_t needed = 0) {
  std::string reason = std::strerror(error);
  if (is_full(error)) {
    const std::int64_t free = descriptor < 0 ? -1 : free_bytes(descriptor);
    if (needed > 0 && free >= 0)
      reason += text(" (it needs ", with_commas(needed), " bytes, and ", with_commas(free),
                     error == EDQUOT ? " are free apart from your quota)" : " are free)");
    reason += "; free some space or write elsewhere";
  }
  if (error == EFBIG) reason += "; see `ulimit -f` and the file system's limit";
  return reason;
}

/// Creates a temporary file next to `path`. Returns its descriptor, and its name in `temporary`.
int create_temporary(const std::string& path, std::string& temporary) {
  remove_dead_temporaries_once(folder_of(path));
  int descriptor = -1;
  do {
    temporary = temporary_name(path);
    descriptor = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EEXIST);
  check_usage(descriptor >= 0, path, ": cannot create a file in ", folder_of(path), ": ",
              why_not_written(errno));
  return descriptor;
}

}  // namespace

void remember_temporary(const std::string& path) {
  const std::lock_guard lock(slots_mutex);
  for (auto& slot : slots) {
    if (slot.used.load() || path.size() >= slot.path.size()) continue;
    std::memcpy(slot.path.data(), path.c_str(), path.size() + 1);
    slot.used.store(true);
    return;
  }
}

void forget_temporary(const std::string& path) {
  const std::lock_guard lock(slots_mutex);
  for (auto& slot : slots)
    if (slot.used.load() && path == slot.path.data()) slot.used.store(false);
}

void write_at(int descriptor, const std::string& path, std::int64_t offset, const void* data,
              std::size_t bytes, std::int64_t file_bytes) {
  const auto* at = static_cast<const char*>(data);
  std::size_t done = 0;
  while (done < bytes) {
    const auto put =
        ::pwrite(descriptor, at + done, bytes - done, offset + static_cast<std::int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    check(put > 0, path, ": cannot write at byte ", offset + static_cast<std::int64_t>(done), ": ",
          why_not_written(put < 0 ? errno : ENOSPC, descriptor,
                          std::max(file_bytes, offset + static_cast<std::int64_t>(bytes))));
    done += static_cast<std::size_t>(put);
  }
}

void flush_to_device(int descriptor, const std::string& path) {
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;  // before check() evaluates its arguments
  check(error == 0 || error == EINVAL, path,
        ": cannot flush to the device: ", why_not_written(error));
}

void flush_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder without read permission cannot be flushed
  ::fsync(descriptor);  // some network file systems reject this for folders; the rename is done
  ::close(descriptor);
}

AtomicFile::AtomicFile(const std::string& path) : path_(resolved(path)) {
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0)
    check_usage(S_ISREG(status.st_mode), path_, ": exists and is not a regular file");
  check_usage(!std::filesystem::path(path_).filename().empty(), "'", path_,
              "' does not name a file");
  descriptor_ = create_temporary(path_, temporary_path_);
  remember_temporary(temporary_path_);
}

AtomicFile::~AtomicFile() {
  if (direct_descriptor_ >= 0) ::close(direct_descriptor_);
  if (descriptor_ >= 0) ::close(descriptor_);
  if (temporary_path_.empty()) return;
  ::unlink(temporary_path_.c_str());
  forget_temporary(temporary_path_);
}

void AtomicFile::probe_space(std::int64_t bytes) {
  planned_bytes_ = bytes;
  const bool fits = ::fallocate(descriptor_, 0, 0, bytes) == 0;
  int error = fits ? 0 : errno;
  const bool reset = ::ftruncate(descriptor_, 0) == 0;
  if (error == EOPNOTSUPP || error == ENOSYS) {
    const std::int64_t free = free_bytes(descriptor_);
    error = free >= 0 && free < bytes ? ENOSPC : 0;
    struct rlimit limit {};  // also limits the file in memory that HDF5 writes to
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(bytes) > limit.rlim_cur)
      error = EFBIG;
  }
  check(error == 0, path_, ": no space for ", human_bytes(bytes), ": ",
        why_not_written(error, descriptor_, bytes));
  check(reset, path_, ": cannot truncate: ", std::strerror(errno));
}

void AtomicFile::write(std::int64_t offset, const void* data, std::size_t bytes) {
  write_at(descriptor_, path_, offset, data, bytes, planned_bytes_);
  const std::int64_t end = (offset + static_cast<std::int64_t>(bytes)) / page_bytes * page_bytes;
  if (end - flushed_ < flushed_bytes) return;
  ::sync_file_range(descriptor_, flushed_, end - flushed_, SYNC_FILE_RANGE_WRITE);
  flushed_ = end;
}

bool AtomicFile::write_direct(std::int64_t offset, const void* data, std::size_t bytes) {
  const auto fits = [](std::uintptr_t n) { return n % direct_alignment == 0; };
  if (!may_be_direct_ || !fits(static_cast<std::uintptr_t>(offset)) || !fits(bytes) ||
      !fits(reinterpret_cast<std::uintptr_t>(data)))
    return false;
  if (direct_descriptor_ < 0)
    direct_descriptor_ = ::open(temporary_path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  const auto put = direct_descriptor_ < 0 ? -1 : ::pwrite(direct_descriptor_, data, bytes, offset);
  if (put == static_cast<ssize_t>(bytes)) return true;
  // After a partial or failed write, the caller repeats the write through the page cache.
  may_be_direct_ = false;
  return false;
}

void AtomicFile::commit() {
  if (direct_descriptor_ >= 0) ::close(std::exchange(direct_descriptor_, -1));
  flush_to_device(descriptor_, path_);
  const int descriptor = std::exchange(descriptor_, -1);
  const bool closed = ::close(descriptor) == 0;
  check(closed, path_, ": cannot close: ", why_not_written(errno));
  const bool renamed = ::rename(temporary_path_.c_str(), path_.c_str()) == 0;
  check(renamed, path_, ": cannot rename ", temporary_path_, " to it: ", std::strerror(errno));
  forget_temporary(temporary_path_);
  temporary_path_.clear();
  flush_folder(folder_of(path_));
}

void replace_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(0, content.data(), content.size());
  file.commit();
}

Spool::Spool(const std::string& path) : path_(resolved(path)) {
  std::string temporary;
  descriptor_ = create_temporary(path_, temporary);
  ::unlink(temporary.c_str());
}

Spool::~Spool() {
  ::close(descriptor_);
}

void Spool::append(const void* data, std::size_t bytes) {
  write_at(descriptor_, path_, bytes_, data, bytes);
  bytes_ += static_cast<std::int64_t>(bytes);
}

void Spool::copy_to(AtomicFile& file, std::int64_t offset) {
  off_t from = 0;
  off_t to = offset;
  while (from < bytes_) {
    const auto copied = ::copy_file_range(descriptor_, &from, file.descriptor(), &to,
                                          static_cast<std::size_t>(bytes_ - from), 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) break;  // the rest is copied through memory
  }
  std::vector<char> buffer(static_cast<std::size_t>(
      std::min<std::int64_t>(1 << 20, std::max<std::int64_t>(bytes_ - from, 0))));
  while (from < bytes_) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(buffer), bytes_ - from));
    const auto got = ::pread(descriptor_, buffer.data(), wanted, from);
    if (got < 0 && errno == EINTR) continue;
    check(got > 0, path_, ": cannot read back its temporary file: ", std::strerror(errno));
    file.write(to, buffer.data(), static_cast<std::size_t>(got));
    from += got;
    to += got;
  }
}

void remove_temporaries_on_signals() {
  struct sigaction action {};
  action.sa_handler = remove_and_die;
  action.sa_flags = SA_NODEFER;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former {};
    ::sigaction(number, nullptr, &former);
    if (former.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);  // preserves nohup
  }
}

// Names of temporary files, and removal of the files that killed processes have left.

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

/// The process that made the temporary file with this name; std::nullopt for any other name.
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

namespace {

void write_stream(const std::string& path, std::string_view content) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  out << content << std::flush;
  check(out.good(), std::strerror(errno));
}

}  // namespace

void write_output(const std::string& path, std::string_view content, const std::string& remedy) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  try {
    if (fs::exists(status) && !fs::is_regular_file(status))
      write_stream(path, content);
    else
      replace_file(path, content);
  } catch (const Error& error) {
    std::string_view reason = error.what();
    if (reason.starts_with(path + ": ")) reason.remove_prefix(path.size() + 2);
    reason = reason.substr(0, reason.find("  [src/"));
    throw UsageError(text(path, ": cannot be written: ", reason, remedy));
  }
}

void write_json(const std::string& path, const std::string& json) {
  if (path == "-")
    log::line(json);
  else
    write_output(path, json + "\n", "; choose another file for --json");
}

void expect_writable(const std::string& path) {
  const std::string kind = not_a_file(path);
  if (!path.empty() && (kind.empty() || kind == "a folder")) AtomicFile{path};
}

}  // namespace trireme::io
