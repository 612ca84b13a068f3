// Collects the facts of a rank for `trireme doctor`.
#include <trireme/commands/doctor_facts.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/process.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <hdf5.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace trireme::commands {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderFacts, files, links, locks, hdf5, shared, free)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, node, cores, address_space, core_file, open_files,
                                   stack, node_memory, memory_limit, shared_memory, core_pattern,
                                   clock, built, clock_offset, hdf5_headers, hdf5_library, device,
                                   device_id, device_memory, device_free, nccl, nccl_error, folder)

namespace {

namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::int64_t soft_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return -1;
  return limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(limit.rlim_cur);
}

/// Limit in bytes, the first word of a cgroup file; -1 without a limit or file.
Bytes limit_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  std::int64_t bytes = -1;
  if (!(in >> word)) return -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bytes);
  return error == std::errc() && bytes < (std::int64_t{1} << 60) ? bytes : -1;
}

Bytes smaller_limit(Bytes a, Bytes b) {
  return a < 0 ? b : b < 0 ? a : std::min(a, b);
}

Bytes physical_memory() {
  return static_cast<Bytes>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
}

/// The reason with which `work` throws, without the source position; "" if it does not throw.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    const std::string message = plain_message(error);
    return message.substr(0, message.find("  [src/"));
  }
  return "";
}

void try_files(const std::string& path) {
  for (const char* content : {"first", "second"}) io::replace_file(path, content);
  const std::string found = content_of(path);
  check(found == "second", path, ": holds \"", found, "\" after \"second\" was renamed over it");
}

void try_links(const std::string& path) {
  const std::string other = path + ".link";
  const bool linked = ::link(path.c_str(), other.c_str()) == 0;
  const int error = errno;
  ::unlink(other.c_str());
  check(linked, path, ": cannot be linked to another name: ", std::strerror(error));
}

/// Error unless an fcntl lock of one descriptor excludes a lock of a second, and flock succeeds.
void try_locks(const std::string& path) {
  const int first = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const int second = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::string wrong;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  struct flock seen = lock;
  if (first < 0 || second < 0)
    wrong = text("cannot be opened: ", std::strerror(errno));
  else if (::fcntl(first, F_OFD_SETLK, &lock) != 0)
    wrong = text("fcntl locks: ", std::strerror(errno));
  else if (::fcntl(second, F_OFD_GETLK, &seen) != 0 || seen.l_type == F_UNLCK)
    wrong = "fcntl locks have no effect";
  else if (::flock(first, LOCK_EX | LOCK_NB) != 0)
    wrong = text("flock: ", std::strerror(errno));
  if (first >= 0) ::close(first);
  if (second >= 0) ::close(second);
  check(wrong.empty(), path, ": ", wrong);
}

void try_hdf5(const std::string& path) {
  const std::array<std::int64_t, 1> none{0};
  const std::array<std::int64_t, 1> all{3};
  const std::array<std::int32_t, 3> written{1, 2, 3};
  {
    auto file = io::Hdf5File::create(path);
    file.create_dataset("numbers", DType::int32, {3}).write(none, all, written.data());
    file.close();
  }
  std::array<std::int32_t, 3> read{};
  io::Hdf5File::open(path).dataset("numbers").read(none, all, read.data());
  check(read == written, path, ": HDF5 read other numbers than it wrote");
}

FolderFacts facts_of_folder(const std::string& folder, bool with_hdf5) {
  FolderFacts facts;
  const ProcessIdentity me = this_process();
  const std::string path =
      (fs::path(folder) / text(".trireme-doctor-", me.host, "-", me.process)).string();
  facts.files = failure_of([&] { try_files(path); });
  if (facts.files.empty()) {
    facts.links = failure_of([&] { try_links(path); });
    facts.locks = failure_of([&] { try_locks(path); });
    if (with_hdf5) facts.hdf5 = failure_of([&] { try_hdf5(path + ".h5"); });
  }
  ::unlink(path.c_str());
  ::unlink((path + ".h5").c_str());
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) == 0)
    facts.free = static_cast<Bytes>(system.f_bavail) * static_cast<Bytes>(system.f_frsize);
  return facts;
}

}  // namespace

Bytes group_memory_limit(const std::string& groups, const std::string& root) {
  Bytes least = -1;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "0::/path" or "9:memory:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const fs::path base = unified ? fs::path(root) : fs::path(root) / "memory";
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    while (true) {  // limits of outer groups apply too
      least = smaller_limit(
          least,
          limit_in((base / group / (unified ? "memory.max" : "memory.limit_in_bytes")).string()));
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return least;
}

RankFacts facts_of_process(const std::string& folder) {
  RankFacts facts;
  facts.node = this_process().host;
  facts.address_space = soft_limit(RLIMIT_AS);
  facts.core_file = soft_limit(RLIMIT_CORE);
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.stack = soft_limit(RLIMIT_STACK);
  facts.node_memory = physical_memory();
  facts.memory_limit = group_memory_limit(content_of("/proc/self/cgroup"), "/sys/fs/cgroup");
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0)
    facts.shared_memory = static_cast<Bytes>(shared.f_blocks) * static_cast<Bytes>(shared.f_frsize);
  facts.core_pattern = content_of("/proc/sys/kernel/core_pattern");
  facts.core_pattern.erase(facts.core_pattern.find_last_not_of(" \n") + 1);
  struct stat program {};
  if (::stat("/proc/self/exe", &program) == 0) facts.built = static_cast<double>(program.st_mtime);
  facts.clock =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  facts.hdf5_headers = text(H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".", H5_VERS_RELEASE);
  facts.hdf5_library = text(major, ".", minor, ".", release);
  facts.folder =
      facts_of_folder(folder, facts.hdf5_library == facts.hdf5_headers);  // otherwise HDF5 aborts
  return facts;
}

std::string packed(const RankFacts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankFacts unpacked_facts(const std::string& text) {
  return nlohmann::json::parse(text).get<RankFacts>();
}

}  // namespace trireme::commands
