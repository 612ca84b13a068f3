// Operations on owner files, their content, and the decision whether an owner is alive.
#include <trireme/base/owner_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/text.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

namespace trireme {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Writes the content. Returns false, with errno set, unless the whole content was written.
bool write_whole(int file, const std::string& content) {
  const ssize_t n = ::write(file, content.data(), content.size());
  if (n >= 0 && n < std::ssize(content)) errno = ENOSPC;
  return n == std::ssize(content);
}

}  // namespace

OwnerDescriptor::~OwnerDescriptor() {
  if (number_ >= 0) ::close(number_);
}

std::optional<OwnerFile> look_at_owner(const std::string& path, int& error) {
  const OwnerDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  error = file.get() < 0 ? errno : 0;
  if (error != 0) return std::nullopt;
  OwnerFile seen;
  struct stat status {};
  ::fstat(file.get(), &status);
  seen.heartbeat = nanoseconds(status.st_mtim);
  seen.device = status.st_dev;
  seen.number = status.st_ino;
  seen.content.resize(4096);
  const auto bytes = ::pread(file.get(), seen.content.data(), seen.content.size(), 0);
  seen.content.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  seen.locked = ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return seen;
}

bool is_absent(int error) {
  return error == ENOENT || error == ENOTDIR || error == ESTALE;
}

std::optional<OwnerFile> look_at_owner(const std::string& path) {
  int error = 0;
  auto seen = look_at_owner(path, error);
  check_usage(error == 0 || is_absent(error), path,
              ": cannot read it to learn who owns the folder: ", std::strerror(error));
  return seen;
}

void write_owner(const std::string& path, const std::string& content) {
  const OwnerDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  const bool written = file.get() >= 0 && write_whole(file.get(), content);
  const int error = errno;
  if (file.get() >= 0 && !written) ::unlink(path.c_str());
  if (!written && (error == ENOSPC || error == EDQUOT))
    throw Error(text(path, ": ", std::strerror(error), "; free some space"));
  check_usage(written, path, ": cannot write there: ", std::strerror(error),
              "; a run records its owner in this folder");
  ::fsync(file.get());
}

bool publish_owner(const std::string& source, const std::string& target,
                   const std::string& content) {
  if (::link(source.c_str(), target.c_str()) == 0) return true;
  const int error = errno;
  struct stat status {};  // NFS may have created the link and lost the reply
  if (::stat(source.c_str(), &status) == 0 && status.st_nlink == 2) return true;
  if (error == EEXIST) return false;
  const bool has_links =
      error != EPERM && error != ENOTSUP && error != ENOSYS && error != EMLINK && error != EXDEV;
  check_usage(!has_links, target, ": cannot create it: ", std::strerror(error));
  const OwnerDescriptor file(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0 && errno == EEXIST) return false;
  const bool written = file.get() >= 0 && write_whole(file.get(), content);
  check_usage(written, target, ": cannot write it: ", std::strerror(errno));
  return true;
}

void remove_owner(const std::string& path, const std::string& content) {
  const auto now = look_at_owner(path);
  if (!now || now->content != content) return;
  const std::string aside = path + ".released-" + checksum(content.data(), content.size()).hex();
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  const auto moved = look_at_owner(aside);  // another job may have taken the folder in between
  if (moved && moved->content != content) publish_owner(aside, path, moved->content);
  ::unlink(aside.c_str());
}

// Content of a folder's file `owner`, and the decision whether the owner is alive.

namespace {

constexpr const char* last_line = "end\n";

}  // namespace

std::string OwnerEntry::description() const {
  if (process.host.empty()) return "a process that is not known";
  return text("process ", process.process, " on ", process.host,
              job.empty() ? "" : text(", job ", job));
}

std::string to_text(const OwnerEntry& e) {
  return text("host ", e.process.host, "\nprocess ", e.process.process, "\nstarted ",
              e.process.started, "\nsystem ", e.process.system, "\njob ", e.job, "\npart ", e.part,
              "\nheartbeat_limit ", e.heartbeat_limit, "\nbegun ", e.begun, "\nnonce ", e.nonce,
              "\n", last_line);
}

std::optional<OwnerEntry> parse_owner(const std::string& content) {
  if (!content.ends_with(last_line)) return std::nullopt;
  std::map<std::string, std::string> values;
  std::istringstream in(content);
  for (std::string line; std::getline(in, line);)
    if (const auto space = line.find(' '); space != std::string::npos)
      values[line.substr(0, space)] = line.substr(space + 1);
  OwnerEntry e;
  e.process = {values["host"], values["system"], std::atoll(values["process"].c_str()),
               std::atoll(values["started"].c_str())};
  e.job = values["job"];
  e.part = values["part"];
  e.heartbeat_limit = std::atof(values["heartbeat_limit"].c_str());
  e.begun = values["begun"];
  e.nonce = values["nonce"];
  if (e.process.host.empty() || e.nonce.empty() || !(e.heartbeat_limit > 0)) return std::nullopt;
  return e;
}

OwnerJudgement judge(const OwnerEntry& owner, const OwnerEntry& mine, Seconds age, bool before_boot,
                     bool locked) {
  using enum OwnerJudgement::Verdict;
  const auto late = text("its last heartbeat is ", fixed(age, 0), " s old");
  switch (life_of(owner.process)) {
    case Life::alive:
      return {alive, ""};
    case Life::dead:
      return {dead, "there is no such process"};
    case Life::not_known:
      break;
  }
  const bool same_host = owner.process.host == mine.process.host;
  const bool same_job = !owner.job.empty() && owner.job == mine.job;
  if (same_job && owner.part != mine.part) return {dead, "its job was restarted"};
  if (same_host && locked) return {alive, ""};  // the kernel knows all locks of its processes
  if (same_host && before_boot) return {dead, "its host was rebooted"};
  if (age > owner.heartbeat_limit) return {dead, late};
  if (same_job && age > heartbeat_missed_seconds) return {dead, late + ", and its job runs here"};
  // A job that was moved to another host finds its own recent heartbeat, so this heartbeat does not
  // prove that the owner is alive.
  if (age <= heartbeat_missed_seconds && !same_job) return {alive, ""};
  return {unclear, ""};
}

}  // namespace trireme
