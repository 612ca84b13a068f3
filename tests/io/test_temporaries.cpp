#include <trireme/base/check.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/atomic_folder.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace trireme::io {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TemporaryFolder;

/// The temporary name that a process used which has died since.
std::string name_of_a_dead_process(const std::string& path) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string name = temporary_name(path);
    [[maybe_unused]] const auto sent = write(ends[1], name.data(), name.size());
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  std::string name(4096, '\0');
  name.resize(static_cast<std::size_t>(read(ends[0], name.data(), name.size())));
  close(ends[0]);
  close(ends[1]);
  return name;
}

int entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(Temporaries, TheNextWriterRemovesFilesOfDeadProcesses) {
  const TemporaryFolder folder;
  const std::string dead = name_of_a_dead_process(folder.file("a.h5"));
  folder.write(fs::path(dead).filename(), "half");
  const std::string alive = temporary_name(folder.file("b.h5"));
  folder.write(fs::path(alive).filename(), "half");
  for (const char* other : {"a.partial", "a.partial-1-2", "a.partial-zzzzzzzz-1-2", ".partial-x",
                            "a.partial-01234567-1-2x", "partial-01234567-1-2"})
    folder.write(other, "the user's");
  replace_file(folder.file("c"), "new");
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive)) << "its process lives";
  EXPECT_EQ(entries(folder.path()), 1 + 6 + 1);
}

TEST(Temporaries, FilesOfOtherMachinesAreRemovedAfterADay) {
  const TemporaryFolder folder;
  const auto old = folder.write("a.partial-01234567-1-2", "half");
  const auto fresh = folder.write("a.partial-01234567-1-3", "half");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(25));
  remove_dead_temporaries(folder.path());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

bool is_model(const std::string& name) {
  return name == "config" || name.starts_with("weights");
}

void write_model(const std::string& folder, const std::string& content) {
  replace_file(folder + "/weights", content);
  replace_file(folder + "/config", content);
}

TEST(AtomicFolder, ReplacesTheModelAndKeepsAllOtherFiles) {
  const TemporaryFolder outer;
  const std::string path = outer.file("model");
  {
    AtomicFolder fresh(path + "/");
    write_model(fresh.temporary_path(), "1");
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(fresh.commit(is_model, "config"));
  }
  fs::create_directory(path + "/notes");
  outer.write("model/notes/a", "mine");
  outer.write("model/README", "mine too");
  outer.write("model/weights-2", "old");
  {
    AtomicFolder dropped(path);
    write_model(dropped.temporary_path(), "lost");
  }
  EXPECT_EQ(read_file(path + "/weights"), "1") << "without commit()";
  {
    AtomicFolder next(path);
    write_model(next.temporary_path(), "2");
    EXPECT_TRUE(next.commit(is_model, "config"));
  }
  EXPECT_EQ(read_file(path + "/weights") + read_file(path + "/config"), "22");
  EXPECT_EQ(read_file(path + "/notes/a") + read_file(path + "/README"), "minemine too");
  EXPECT_FALSE(fs::exists(path + "/weights-2"));
  EXPECT_EQ(entries(outer.path()), 1) << "no temporary folder is left";
}

TEST(AtomicFolder, IsCompleteAtEveryMoment) {
  const TemporaryFolder outer;
  const std::string path = outer.file("model");
  fs::create_directory(path);
  write_model(path, "0");
  std::atomic<bool> stop{false};
  std::atomic<int> looks{0};
  std::thread reader([&] {
    const auto content = [](int folder, const char* name) {
      const int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
      char buffer[16] = {};
      const auto bytes = file < 0 ? -1 : read(file, buffer, sizeof buffer);
      if (file >= 0) close(file);
      return bytes < 0 ? std::string("none") : std::string(buffer);
    };
    while (!stop) {
      const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      ASSERT_GE(folder, 0) << "the folder is missing for a moment";
      const std::string config = content(folder, "config");
      const std::string weights = content(folder, "weights");
      if (config != "none" && weights != "none") {  // else it was replaced and removed since
        EXPECT_EQ(config, weights);
        ++looks;
      }
      close(folder);
    }
  });
  for (int i = 1; i <= 100; ++i) {
    AtomicFolder next(path);
    write_model(next.temporary_path(), std::to_string(i));
    EXPECT_TRUE(next.commit(is_model, "config"));
  }
  stop = true;
  reader.join();
  EXPECT_GT(looks, 0);
}

TEST(AtomicFolder, ReplacesTheWorkingDirectoryFileByFile) {
  const TemporaryFolder outer;
  const auto before = fs::current_path();
  fs::create_directory(outer.file("model"));
  write_model(outer.file("model"), "1");
  outer.write("model/weights-2", "old");
  outer.write("model/README", "mine");
  fs::current_path(outer.file("model"));
  {
    AtomicFolder next(".");
    write_model(next.temporary_path(), "2");
    EXPECT_FALSE(next.commit(is_model, "config"));
  }
  fs::current_path(before);
  EXPECT_EQ(read_file(outer.file("model/weights")) + read_file(outer.file("model/config")), "22");
  EXPECT_EQ(entries(outer.file("model")), 3) << "weights, config, README";
}

}  // namespace
}  // namespace trireme::io
