// Ownership of folders without a lock service. The file `owner` is created by link(2), which is
// atomic also on NFS. A dead owner is replaced in two steps. First, a process links the claim
// `owner.after-X`, where X is the digest of the dead owner's content; only one process can create
// this link. Then this process renames its own file to `owner`. If this process dies between the
// steps, the name of the next claim contains the digest of this process's content. The claims thus
// form a list, and the end of the list is the owner.
#include <trireme/base/folder_owner.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/owner_file.hpp>
#include <trireme/base/text.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* owner_file_name = "owner";
constexpr Seconds least_limit = 60;
constexpr Seconds usual_limit = 600;
constexpr auto look_again = 500ms;
/// Age in seconds below which an owner file may still be incomplete.
constexpr Seconds writing_seconds = 2;

OwnerEntry entry_of_this_job(Seconds watchdog) {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  std::random_device random;
  return {this_process(),
          batch_job().value_or(""),
          restarts != nullptr ? restarts : "0",
          watchdog > 0 ? std::max(watchdog, least_limit) : usual_limit,
          to_text(utc_now()),
          text(random(), "-", random(), "-", getpid())};
}

struct Owned {
  std::string path;
  std::string content;
};
std::mutex owned_mutex;
std::vector<Owned>& owned() {
  static std::vector<Owned> all;
  return all;
}

}  // namespace

struct FolderOwner::State {
  std::string folder;
  std::string path;
  std::string temporary;
  OwnerEntry mine;
  std::string content;
  std::string former;
  OwnerDescriptor file;  ///< descriptor of the owner file; holds its lock
  dev_t device = 0;
  ino_t number = 0;

  std::mutex mutex;
  std::condition_variable stop;
  bool stopping = false;
  std::thread beats;

  bool replace_dead(const std::string& what, const std::function<void(const std::string&)>& wait);
  void take(const std::string& what, const std::function<void(const std::string&)>& waiting);
  void hold();
  void sweep() const;
  std::int64_t now() const;
  OwnerJudgement judge_now(const OwnerFile& seen, Seconds& age) const;
  std::string claim_after(const std::string& dead) const {
    return path + ".after-" + checksum(dead.data(), dead.size()).hex();
  }
};

/// Current time by the file system's clock, in nanoseconds since 1970.
std::int64_t FolderOwner::State::now() const {
  ::utimensat(AT_FDCWD, temporary.c_str(), nullptr, 0);
  const auto seen = look_at_owner(temporary);
  check_usage(seen.has_value(), temporary, ": was removed while the run took its folder");
  return seen->heartbeat;
}

OwnerJudgement FolderOwner::State::judge_now(const OwnerFile& seen, Seconds& age) const {
  OwnerEntry entry = parse_owner(seen.content).value_or(OwnerEntry{});
  if (entry.heartbeat_limit <= 0) entry.heartbeat_limit = usual_limit;
  age = static_cast<Seconds>(now() - seen.heartbeat) * 1e-9;
  if (entry.process.host.empty() && age < writing_seconds)
    return {OwnerJudgement::Verdict::unclear, ""};
  return judge(entry, mine, age, seen.heartbeat < boot_time(), seen.locked);
}

/// Judges the owner once. Returns true if the owner was dead and this process has replaced it;
/// false: try again. UsageError if the owner is alive.
bool FolderOwner::State::replace_dead(const std::string& what,
                                      const std::function<void(const std::string&)>& wait) {
  const auto root = look_at_owner(path);
  if (!root) return false;  // the owner has released the folder
  OwnerFile last = *root;
  std::vector<std::string> claims;
  for (;;) {  // finds the end of the list of claims
    const std::string claim = claim_after(last.content);
    const auto next = look_at_owner(claim);
    if (!next) break;
    claims.push_back(claim);
    last = *next;
  }
  Seconds age = 0;
  const OwnerEntry owner = parse_owner(last.content).value_or(OwnerEntry{});
  const OwnerJudgement found = judge_now(last, age);
  if (found.verdict == OwnerJudgement::Verdict::unclear) {
    wait(text(owner.description(), ": its last heartbeat was ", fixed(age, 0), " s ago"));
    std::this_thread::sleep_for(look_again);
    const auto later = look_at_owner(claims.empty() ? path : claims.back());
    if (!later || later->heartbeat == last.heartbeat || owner.process.host.empty()) return false;
  }
  check_usage(found.verdict == OwnerJudgement::Verdict::dead, what,
              " belongs to a job that is running: ", owner.description(),
              owner.begun.empty() ? "" : ", since " + owner.begun,
              owner.process.system == mine.process.system
                  ? ""
                  : text(" (last heartbeat ", fixed(std::max(age, 0.0), 0), " s ago)"),
              "; wait for its end, stop it, or choose another folder");
  claims.push_back(claim_after(last.content));
  if (!publish_owner(temporary, claims.back(), content)) return false;  // another job was faster
  const auto again = look_at_owner(path);
  const bool still = again && again->content == root->content;
  if (still) {
    const bool renamed = ::rename(temporary.c_str(), path.c_str()) == 0;
    check_usage(renamed, path, ": cannot replace it: ", std::strerror(errno));
    former = text(owner.description(), ", which has died (", found.reason, ")");
    for (const std::string& claim : claims) ::unlink(claim.c_str());
  } else {
    ::unlink(claims.back().c_str());
  }
  return still;
}

void FolderOwner::State::take(const std::string& what,
                              const std::function<void(const std::string&)>& waiting) {
  bool told = false;
  const auto wait = [&](const std::string& words) {
    if (waiting && !std::exchange(told, true)) waiting(words);
  };
  temporary = path + ".new-" + mine.nonce;
  write_owner(temporary, content);
  try {
    while (!publish_owner(temporary, path, content) && !replace_dead(what, wait)) {
    }
    const auto seen = look_at_owner(path);
    check_usage(seen && seen->content == content, what,
                " was taken by another job at the same moment");
    device = seen->device;
    number = seen->number;
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  ::unlink(temporary.c_str());
}

/// Locks the owner file and starts the thread that renews the heartbeat.
void FolderOwner::State::hold() {
  file = OwnerDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  ::fcntl(file.get(), F_OFD_SETLK, &lock);  // some file systems have no locks
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  beats = std::thread([this] {
    std::unique_lock held(mutex);
    const auto interval = std::chrono::duration<double>(heartbeat_seconds);
    while (!stop.wait_for(held, interval, [this] { return stopping; }))
      if (file.get() < 0 || ::futimens(file.get(), nullptr) != 0)
        ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Removes the files `owner.*` of dead processes of this host.
void FolderOwner::State::sweep() const {
  const std::string prefix = text(owner_file_name, ".");
  std::vector<std::string> found;
  for (const auto& entry : readable_entries_of(folder))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  for (const std::string& left : found) {
    const auto seen = look_at_owner(left);
    const auto entry = seen ? parse_owner(seen->content) : std::nullopt;
    if (entry && life_of(entry->process) == Life::dead) ::unlink(left.c_str());
  }
}

FolderOwner::FolderOwner(const std::string& folder, const std::string& what, Seconds watchdog,
                         const std::function<void(const std::string&)>& waiting)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.folder = folder;
  s.path = folder + "/" + owner_file_name;
  s.mine = entry_of_this_job(watchdog);
  s.content = to_text(s.mine);
  s.take(what, waiting);
  {
    const std::lock_guard lock(owned_mutex);
    owned().push_back({s.path, s.content});
  }
  s.sweep();
  s.hold();
}

FolderOwner::~FolderOwner() {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.stopping = true;
  }
  s.stop.notify_all();
  s.beats.join();
  const std::lock_guard lock(owned_mutex);
  std::erase_if(owned(), [&](const Owned& one) { return one.content == s.content; });
  try {
    remove_owner(s.path, s.content);
  } catch (const Error&) {  // the process may have lost access to the folder
  }
}

const std::string& FolderOwner::former() const {
  return state_->former;
}

void FolderOwner::expect_mine() const {
  const State& s = *state_;
  int error = 0;
  const auto seen = look_at_owner(s.path, error);
  if (!seen && !is_absent(error)) return;  // a temporary failure proves nothing
  if (seen && seen->device == s.device && seen->number == s.number) return;
  if (seen && seen->content == s.content) return;
  std::error_code ignored;
  if (!seen && fs::is_directory(s.folder, ignored))
    throw Error(text(s.path,
                     " was removed while this run was writing to the folder; the folder was "
                     "emptied, or replaced by another folder"));
  if (!seen)
    throw Error(text(s.folder, " was removed or renamed while this run was writing to it"));
  const auto other = parse_owner(seen->content).value_or(OwnerEntry{});
  throw Error(text(s.folder, " now belongs to ", other.description(),
                   ", because this run gave no heartbeat for longer than ",
                   fixed(s.mine.heartbeat_limit, 0), " s"));
}

std::string owned_folders() {
  const std::lock_guard lock(owned_mutex);
  std::string all;
  for (const Owned& one : owned()) all += one.path + '\0' + one.content + '\0';
  return all;
}

void know_owned_folders(const std::string& all) {
  const std::lock_guard lock(owned_mutex);
  owned().clear();
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t path_end = all.find('\0', at);
    const std::size_t end = all.find('\0', path_end + 1);
    owned().push_back(
        {all.substr(at, path_end - at), all.substr(path_end + 1, end - path_end - 1)});
    at = end + 1;
  }
}

void release_owned_folders() {
  const std::lock_guard lock(owned_mutex);
  for (const Owned& one : owned()) {
    try {
      remove_owner(one.path, one.content);
    } catch (const Error&) {
    }
  }
  owned().clear();
}

}  // namespace trireme
