#include <trireme/base/process.hpp>

#include <trireme/base/checksum.hpp>
#include <trireme/base/text.hpp>

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace trireme {
namespace {

std::string system_digest() {
  std::string words;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), words);
  std::array<char, 64> space{};
  if (readlink("/proc/self/ns/pid", space.data(), space.size() - 1) > 0) words += space.data();
  return checksum(words.data(), words.size()).hex().substr(0, 16);
}

std::int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Fields 2, 3, 4 and 22 of /proc/PID/stat: "42 (mpiexec) S 41 ...".
ProcessEntry process_entry(std::int64_t process) {
  std::ifstream in(text("/proc/", process, "/stat"));
  std::string stat;
  std::getline(in, stat, '\0');
  ProcessEntry entry;
  const auto begin = stat.find('(');
  const auto end = stat.rfind(')');  // the name may contain any character
  if (begin == std::string::npos || end == std::string::npos) return entry;
  entry.name = stat.substr(begin + 1, end - begin - 1);
  std::istringstream fields(stat.substr(end + 1));
  std::string skipped;
  fields >> entry.state >> entry.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> entry.started;
  return entry;
}

ProcessIdentity this_process() {
  return {host_name(), system_digest(), getpid(), process_entry(getpid()).started};
}

Life life_of(const ProcessIdentity& process) {
  const ProcessIdentity mine = this_process();
  if (process.host != mine.host || process.system != mine.system) return Life::not_known;
  if (process.process <= 0) return Life::dead;
  const ProcessEntry entry = process_entry(process.process);
  if (kill(static_cast<pid_t>(process.process), 0) != 0 && errno == ESRCH) return Life::dead;
  if (entry.state == 'Z' || entry.state == 'X') return Life::dead;
  const bool reused = process.started > 0 && entry.started > 0 && entry.started != process.started;
  return reused ? Life::dead : Life::alive;
}

std::optional<std::string> batch_job() {
  constexpr std::array names{"SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "LSB_JOBID",
                             "COBALT_JOBID"};
  for (const char* name : names)
    if (const char* id = std::getenv(name); id != nullptr && *id != '\0') return id;
  return std::nullopt;
}

std::int64_t boot_time() {
  return nanoseconds(CLOCK_REALTIME) - nanoseconds(CLOCK_BOOTTIME);
}

Bytes peak_resident_bytes() {
  // Linux only. getrusage() would also count the memory of the program before exec().
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (Bytes kibibytes = 0; word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  return 0;
}

}  // namespace trireme
