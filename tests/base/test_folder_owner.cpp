#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/folder_owner.hpp>

#include <support/messages.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Verdict = OwnerJudgement::Verdict;
using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;

/// An owner on another host, as its file would say.
OwnerEntry elsewhere(const std::string& job = "7") {
  return {{"far", "0123456789abcdef", 4242, 1}, job, "0", 600, "2026-11-23T00:00:00.000Z", "n"};
}
OwnerEntry here(const std::string& job = "8", const std::string& part = "0") {
  return {this_process(), job, part, 600, "2026-11-23T00:00:00.000Z", "m"};
}

/// The number of a process that has ended and was waited for.
pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

void leave_owner(const TemporaryFolder& folder, const OwnerEntry& owner, std::chrono::seconds age) {
  const auto path = folder.write("owner", to_text(owner));
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

TEST(OwnerEntry, ReadsBackOnlyWhenComplete) {
  const OwnerEntry written = here("job 9", "3");
  const std::string content = to_text(written);
  const auto found = parse_owner(content);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->process, written.process);
  EXPECT_EQ(found->job, "job 9");
  EXPECT_EQ(found->part, "3");
  EXPECT_EQ(found->heartbeat_limit, 600);
  EXPECT_EQ(found->begun, written.begun);
  for (std::size_t size = 0; size < content.size(); ++size)
    EXPECT_FALSE(parse_owner(content.substr(0, size))) << size;
}

TEST(ProcessIdentity, DistinguishesZombiesAndReusedIdsFromLivingProcesses) {
  ProcessIdentity mine = this_process();
  EXPECT_GT(mine.started, 0);
  EXPECT_EQ(life_of(mine), Life::alive);
  ++mine.started;
  EXPECT_EQ(life_of(mine), Life::dead) << "another process had this number before";
  mine.process = dead_process();
  EXPECT_EQ(life_of(mine), Life::dead);
  const pid_t zombie = fork();
  if (zombie == 0) _exit(0);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
  mine.process = zombie;
  mine.started = 0;
  EXPECT_EQ(life_of(mine), Life::dead);
  waitpid(zombie, nullptr, 0);
  mine.host += "x";
  EXPECT_EQ(life_of(mine), Life::not_known);
}

/// Files of /proc can no longer be read once their process has ended, also between open and read.
TEST(ProcessIdentity, AnEndedProcessIsDeadWithoutAnError) {
  auto* const before = signal(SIGCHLD, SIG_IGN);  // no zombies
  for (int i = 0; i < 300; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(10 * (i % 30)));
      _exit(0);
    }
    ProcessIdentity process = this_process();
    process.process = child;
    process.started = 0;
    while (life_of(process) == Life::alive) {
    }
    EXPECT_EQ(life_of(process), Life::dead);
  }
  signal(SIGCHLD, before);
}

TEST(OwnerJudgement, UsesTheProcessOnThisHostAndTheHeartbeatElsewhere) {
  const OwnerEntry mine = here();
  const auto verdict = [&](const OwnerEntry& owner, Seconds age) {
    return judge(owner, mine, age, false, false).verdict;
  };
  EXPECT_EQ(verdict(here(), 1e9), Verdict::alive) << "it lives, however old its heartbeat is";
  OwnerEntry dead = here();
  dead.process.process = dead_process();
  EXPECT_EQ(verdict(dead, 0), Verdict::dead);
  EXPECT_EQ(verdict(elsewhere(), 0), Verdict::alive);
  EXPECT_EQ(verdict(elsewhere(), heartbeat_missed_seconds), Verdict::alive);
  EXPECT_EQ(verdict(elsewhere(), heartbeat_missed_seconds + 1), Verdict::unclear);
  EXPECT_EQ(verdict(elsewhere(), 600), Verdict::unclear);
  EXPECT_EQ(verdict(elsewhere(), 601), Verdict::dead);
}

TEST(OwnerJudgement, RestartedJobContinuesAtOnce) {
  const auto verdict = [](const OwnerEntry& owner, const OwnerEntry& mine, Seconds age) {
    return judge(owner, mine, age, false, false).verdict;
  };
  EXPECT_EQ(verdict(elsewhere("7"), here("7", "1"), 0), Verdict::dead) << "a requeued part";
  // The same part on another host may be another step of the same job: its next heartbeat tells.
  EXPECT_EQ(verdict(elsewhere("7"), here("7", "0"), 0), Verdict::unclear);
  EXPECT_EQ(verdict(elsewhere("7"), here("7", "0"), heartbeat_missed_seconds + 1), Verdict::dead);
  EXPECT_EQ(verdict(elsewhere(""), here("", "1"), 0), Verdict::alive) << "no batch system";
}

TEST(OwnerJudgement, RecognisesRebootsAndNamespacesOfThisHost) {
  OwnerEntry owner = elsewhere();
  owner.process.host = this_process().host;
  EXPECT_EQ(judge(owner, here(), 100, true, false).verdict, Verdict::dead);
  EXPECT_EQ(judge(owner, here(), 100, false, false).verdict, Verdict::unclear);
  EXPECT_EQ(judge(owner, here(), 1e9, true, true).verdict, Verdict::alive) << "its lock is held";
}

TEST(FolderOwner, IsExclusiveAndReleasesTheFolder) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  std::optional<FolderOwner> first(std::in_place, path, "[run] directory = \"run\"", 600);
  EXPECT_EQ(first->former(), "");
  EXPECT_NO_THROW(first->expect_mine());
  const auto message = message_of([&] { FolderOwner(path, "[run] directory = \"run\"", 600); });
  EXPECT_NE(message.find("[run] directory = \"run\" belongs to a job that is running: process " +
                         std::to_string(getpid()) + " on " + this_process().host),
            std::string::npos)
      << message;
  EXPECT_NO_THROW(first->expect_mine());
  EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1) << "nothing is left of the other";
  first.reset();
  EXPECT_TRUE(fs::is_empty(path));
  first.emplace(path, "it", 600);
  EXPECT_EQ(first->former(), "");
}

TEST(FolderOwner, TakesOverFromADeadOwnerAndRemovesItsFiles) {
  const TemporaryFolder folder;
  OwnerEntry dead = here("41873");
  dead.process.process = dead_process();
  leave_owner(folder, dead, 0s);
  OwnerEntry another = dead;
  another.nonce = "o";
  folder.write("owner.new-o", to_text(another));
  const FolderOwner owner(folder.path().string(), "it", 600);
  EXPECT_EQ(owner.former(), "process " + std::to_string(dead.process.process) + " on " +
                                dead.process.host +
                                ", job 41873, which has died (there is no such process)");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  EXPECT_NE(read_file(folder.file("owner")), to_text(dead));
}

TEST(FolderOwner, JudgesOtherHostsByTheAgeOfTheFile) {
  const TemporaryFolder folder;
  leave_owner(folder, elsewhere(), 10s);
  EXPECT_NE(message_of([&] { FolderOwner(folder.path().string(), "it", 600); })
                .find("process 4242 on far, job 7, since 2026-11-23T00:00:00.000Z (last heartbeat "
                      "1"),
            std::string::npos);
  EXPECT_EQ(read_file(folder.file("owner")), to_text(elsewhere()));
  leave_owner(folder, elsewhere(), 700s);
  EXPECT_NE(FolderOwner(folder.path().string(), "it", 600).former().find("heartbeat is 70"),
            std::string::npos);
}

TEST(FolderOwner, WaitsForALateHeartbeat) {
  const TemporaryFolder folder;
  leave_owner(folder, elsewhere(), 60s);
  std::string told;
  std::thread beats([&] {
    std::this_thread::sleep_for(1s);
    fs::last_write_time(folder.file("owner"), fs::file_time_type::clock::now());
  });
  const auto message = message_of([&] {
    FolderOwner(folder.path().string(), "it", 600, [&](const std::string& why) { told = why; });
  });
  beats.join();
  EXPECT_NE(message.find("belongs to a job that is running"), std::string::npos) << message;
  EXPECT_NE(told.find("process 4242 on far, job 7: its last heartbeat was 6"), std::string::npos)
      << told;
}

TEST(FolderOwner, TreatsADamagedFileAsAnOwnerUntilItIsOld) {
  const TemporaryFolder folder;
  folder.write("owner", "");
  EXPECT_NE(message_of([&] {
              FolderOwner(folder.path().string(), "it", 600);
            }).find("a process that is not known"),
            std::string::npos);
  fs::last_write_time(folder.file("owner"), fs::file_time_type::clock::now() - 700s);
  EXPECT_NO_THROW(FolderOwner(folder.path().string(), "it", 600));
}

/// A claimant that died between its two steps is the owner whose death counts.
TEST(FolderOwner, FollowsClaimsOfDeadAndLivingProcesses) {
  const TemporaryFolder folder;
  OwnerEntry dead = here();
  dead.process.process = dead_process();
  OwnerEntry claimant = dead;
  claimant.nonce = "claimant";
  leave_owner(folder, dead, 0s);
  const auto claim_on = [&](const OwnerEntry& of) {
    const std::string content = to_text(of);
    return "owner.after-" + checksum(content.data(), content.size()).hex();
  };
  folder.write(claim_on(dead), to_text(claimant));
  EXPECT_NE(FolderOwner(folder.path().string(), "it", 600).former(), "");
  EXPECT_TRUE(fs::is_empty(folder.path())) << "both claims are removed";

  leave_owner(folder, dead, 0s);
  folder.write(claim_on(dead), to_text(here()));
  EXPECT_NE(message_of([&] {
              FolderOwner(folder.path().string(), "it", 600);
            }).find("belongs to a job that is running"),
            std::string::npos);
}

TEST(FolderOwner, DetectsARemovedOrRenamedFolderAndAnotherOwner) {
  const TemporaryFolder outer;
  const auto in = [&](const std::string& name) {
    fs::create_directory(outer.file(name));
    return outer.file(name);
  };
  {
    const FolderOwner owner(in("a"), "it", 600);
    fs::rename(outer.file("a"), outer.file("b"));
    EXPECT_NE(message_of([&] { owner.expect_mine(); }).find("was removed or renamed"),
              std::string::npos);
    in("a");
    EXPECT_NE(message_of([&] { owner.expect_mine(); }).find("/owner was removed"),
              std::string::npos);
  }
  {
    const FolderOwner owner(in("c"), "it", 600);
    fs::remove(outer.file("c/owner"));
    std::ofstream(outer.file("c/owner")) << to_text(elsewhere());
    EXPECT_NE(message_of([&] { owner.expect_mine(); }).find("now belongs to process 4242 on far"),
              std::string::npos);
  }
  EXPECT_EQ(read_file(outer.file("c/owner")), to_text(elsewhere())) << "another's is not removed";
}

TEST(FolderOwner, AnotherProcessOfTheJobReleasesIt) {
  const TemporaryFolder folder;
  const FolderOwner owner(folder.path().string(), "it", 600);
  const std::string owned = owned_folders();
  const pid_t other = fork();
  if (other == 0) {
    know_owned_folders(owned);
    release_owned_folders();
    _exit(0);
  }
  waitpid(other, nullptr, 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

/// Many processes at once: exactly one gets the folder, in the presence of a dead owner too.
TEST(FolderOwner, ExactlyOneConcurrentProcessWins) {
  constexpr int processes = 12;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    if (round % 2 == 1) {
      OwnerEntry dead = here();
      dead.process.process = dead_process();
      leave_owner(folder, dead, 0s);
    }
    int gate[2];
    int done[2];
    ASSERT_EQ(pipe(gate) + pipe(done), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        close(gate[1]);
        close(done[1]);
        char byte = 0;
        [[maybe_unused]] const auto opened = read(gate[0], &byte, 1);  // end of file: all start
        int code = 1;
        try {
          const FolderOwner owner(folder.path().string(), "it", 600);
          code = 0;
          owner.expect_mine();
          [[maybe_unused]] const auto ended = read(done[0], &byte, 1);  // holds it to the end
        } catch (const UsageError&) {
        } catch (const Error&) {
          code = 2;
        }
        _exit(code);
      }
      children.push_back(child);
    }
    close(gate[0]);
    close(gate[1]);
    close(done[0]);
    int winners = 0;
    for (int lost = 0; lost < processes - 1; ++lost) {
      int status = 0;
      waitpid(-1, &status, 0);
      EXPECT_EQ(WEXITSTATUS(status), 1);
    }
    close(done[1]);
    int status = 0;
    while (waitpid(-1, &status, 0) > 0) winners += WEXITSTATUS(status) == 0 ? 1 : 0;
    EXPECT_EQ(winners, 1) << "round " << round;
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace trireme
