#pragma once

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace trireme::testing {

/// A shell command line that runs in the background in a folder, with this build's programs first
/// on the path and with its output in the folder's files `out` and `err`. All its processes end
/// with the object, including orphans, which this process adopts. Only one may exist at a time.
class Job {
 public:
  Job(const TemporaryFolder& folder, const std::string& line) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::string directory = folder.path().string();
    const std::string path = TRIREME_BINARY_DIR "/bin:" + std::string(std::getenv("PATH"));
    const auto out = folder.write("out", "");
    const auto err = folder.write("err", "");
    child_ = fork();
    if (child_ != 0) return;
    setsid();
    setenv("PATH", path.c_str(), 1);
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    dup2(open(out.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC), 1);
    dup2(open(err.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC), 2);
    if (chdir(directory.c_str()) == 0) execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  ~Job() { kill_all(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool runs() {
    if (!ended_ && waitpid(child_, &status_, WNOHANG) == child_) ended_ = true;
    return !ended_;
  }

  /// Waits until the job has ended or the condition holds; returns whether the condition holds.
  bool until(const std::function<bool()>& condition, double seconds = 60) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
      if (!runs()) return condition();
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  /// The exit code; -1 if the job was ended by a signal or by this call.
  int wait(double seconds = 120) {
    if (!until([] { return false; }, seconds) && !ended_) {
      ADD_FAILURE() << "the job did not end within " << seconds << " s";
      kill_all();
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }

  /// All running processes started by the job.
  std::vector<pid_t> processes() const { return descendants(getpid()); }

  /// The processes of the ranks, in rank order; empty until all exist.
  std::vector<pid_t> ranks(int number) const {
    std::vector<pid_t> found(static_cast<std::size_t>(number));
    int seen = 0;
    for (const pid_t pid : processes()) {
      const std::string folder = "/proc/" + std::to_string(pid);
      if (read(folder + "/comm") != "trireme-engine\n") continue;
      const std::string environment = '\0' + read(folder + "/environ");
      const auto at = environment.find(std::string("\0PMI_RANK=", 10));
      const int rank = at == std::string::npos ? 0 : std::atoi(environment.c_str() + at + 10);
      if (rank < number && found[static_cast<std::size_t>(rank)] == 0) ++seen;
      if (rank < number) found[static_cast<std::size_t>(rank)] = pid;
    }
    return seen == number ? found : std::vector<pid_t>();
  }

  /// Sends SIGKILL to all processes at once, including the launcher; returns when none is left.
  void kill_all() {
    for (auto all = processes(); !all.empty(); all = processes()) {
      for (const pid_t pid : all) kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      int status = 0;
      for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == child_) {
          ended_ = true;
          status_ = status;
        }
    }
  }

 private:
  /// A file of /proc; "" if its process has ended.
  static std::string read(const std::filesystem::path& path) {
    std::ostringstream content;
    content << std::ifstream(path).rdbuf();
    return content.str();
  }

  static std::vector<pid_t> descendants(pid_t of) {
    std::vector<std::pair<pid_t, pid_t>> parents;  // for every process
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid <= 0) continue;
      const std::string stat = read(entry.path() / "stat");
      const auto name_end = stat.rfind(')');
      if (name_end == std::string::npos || name_end + 4 >= stat.size()) continue;
      parents.emplace_back(pid, std::atoi(stat.c_str() + name_end + 4));
    }
    std::vector<pid_t> found{of};
    for (std::size_t i = 0; i < found.size(); ++i)
      for (const auto& [pid, parent] : parents)
        if (parent == found[i]) found.push_back(pid);
    found.erase(found.begin());
    return found;
  }

  pid_t child_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace trireme::testing
