// trireme bench, section checkpoint: writing and reading a checkpoint of the deck's model, compared
// round by round with plain files of the same size. Files are dropped from the page cache before
// they are read.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/saver.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t piece_bytes = 8 << 20;  // per call of plain reading and writing

void write_plain(const std::string& path, std::span<const char> bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  check(descriptor >= 0, path, ": cannot create: ", std::strerror(errno));
  const struct Closed {
    int descriptor;
    ~Closed() { ::close(descriptor); }
  } closed{descriptor};
  for (std::int64_t at = 0; at < std::ssize(bytes); at += piece_bytes)
    io::write_at(descriptor, path, at, bytes.data() + at,
                 static_cast<std::size_t>(std::min(piece_bytes, std::ssize(bytes) - at)));
  io::flush_to_device(descriptor, path);
}

void read_plain(const std::string& path, std::span<char> bytes) {
  const io::InputFile file(path);
  for (std::int64_t at = 0; at < std::ssize(bytes); at += piece_bytes)
    file.read(at, bytes.data() + at,
              static_cast<std::size_t>(std::min(piece_bytes, std::ssize(bytes) - at)));
}

/// Drops the files in `folder` from the page cache, so that they are read from the device. Has no
/// effect on file systems that do not support it.
void forget_cached(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const io::InputFile file(entry.path().string());
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

/// One rank's share of the model, written and read as a plain file and as a checkpoint.
class Paths {
 public:
  Paths(const BenchSetting& setting, const std::string& folder, train::Engine& engine)
      : setting_(setting), folder_(folder), share_(engine.share()) {
    std::int64_t bytes = 0;
    for (const auto& slice : share_) bytes += slice.bytes();
    setting.runtime.together([&] { numbers_.resize(static_cast<std::size_t>(bytes)); });
    char* at = numbers_.data();
    for (const auto& slice : share_) {
      const std::int64_t size = slice.bytes();
      if (slice.data != nullptr)
        std::memcpy(at, slice.data, static_cast<std::size_t>(size));
      else if (size > 0)
        slice.copy(0, size, at);
      at += size;
    }
    bytes_ = setting.runtime.world().all_reduce<std::int64_t>(bytes, grid::Reduction::sum,
                                                              "a checkpoint's bytes");
    config_ = setting.session.config().checkpoint;
    config_.directory = folder_ + "/checkpoints";
    config_.keep = 1;
    config_.keep_every = 0;
    plain_ = text(folder_, "/plain-", setting.runtime.rank());
    saver_.emplace(config_, setting.runtime.world(), engine, 0);
  }

  Bytes bytes() const { return bytes_; }

  Seconds write_plainly() {
    remove(plain_, true);
    return slowest_seconds(setting_.runtime, [&] {
      setting_.runtime.together([&] { write_plain(plain_, numbers_); });
    });
  }
  Seconds read_plainly() {
    return read([&] { read_plain(plain_, numbers_); });
  }
  Seconds write_checkpoint() {
    remove(config_.directory, setting_.runtime.rank() == 0);
    setting_.runtime.together([&] {
      if (setting_.runtime.rank() == 0) checkpoint::prepare_directory(config_.directory);
    });
    return slowest_seconds(setting_.runtime, [&] { saver_->save({1, 0, ""}, false); });
  }
  Seconds read_checkpoint() {
    return read([&] {
      const checkpoint::Reader reader(config_.directory + "/" + checkpoint::folder_name(1),
                                      checkpoint::Opening::manifest);
      char* at = numbers_.data();
      for (const auto& slice : share_) {
        reader.read_slice(slice.name, slice.dtype, slice.shape, slice.offset, slice.extent, at);
        at += slice.bytes();
      }
    });
  }

 private:
  void remove(const std::string& path, bool mine) const {
    setting_.runtime.together([&] {
      if (mine) fs::remove_all(path);
      ::sync();  // otherwise the next measurement includes pending writes and removals
    });
  }
  Seconds read(const std::function<void()>& work) const {
    setting_.runtime.together([&] { forget_cached(folder_); });
    return slowest_seconds(setting_.runtime, [&] { setting_.runtime.together(work); });
  }

  const BenchSetting& setting_;
  std::string folder_;
  std::vector<checkpoint::SliceView> share_;
  std::vector<char> numbers_;  ///< values of the share, in host memory
  Bytes bytes_ = 0;            ///< bytes of all ranks
  deck::CheckpointConfig config_;
  std::string plain_;
  std::optional<train::Saver> saver_;
};

/// Seconds of plain files and checkpoints, round by round.
struct Pairs {
  std::vector<double> plain;
  std::vector<double> checkpoint;

  /// Measures the plain file and the checkpoint; their order alternates between rounds.
  void measure(std::int64_t round, const std::function<Seconds()>& plainly,
               const std::function<Seconds()>& as_checkpoint) {
    if (round % 2 == 0) plain.push_back(plainly());
    checkpoint.push_back(as_checkpoint());
    if (round % 2 == 1) plain.push_back(plainly());
  }
  double ratio() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < plain.size(); ++i) ratios.push_back(plain[i] / checkpoint[i]);
    return median(ratios);
  }
};

}  // namespace

BenchReport bench_checkpoint(const BenchSetting& setting) {
  const BenchFolder folder(setting, room_for_checkpoints(setting.session));
  schedule::Program program;
  const auto engine = bench_engine(setting, program);
  Paths paths(setting, folder.path(), *engine);
  Pairs write;
  Pairs read;
  const bool spoke = log::speaking();
  log::set_speaking(false);  // the saver logs every checkpoint
  for (std::int64_t round = 0; round < setting.rounds; ++round) {
    write.measure(
        round, [&] { return paths.write_plainly(); }, [&] { return paths.write_checkpoint(); });
    read.measure(
        round, [&] { return paths.read_plainly(); }, [&] { return paths.read_checkpoint(); });
  }
  log::set_speaking(spoke);
  const auto bytes = static_cast<double>(paths.bytes());
  const auto rate = [&](const std::vector<double>& seconds) {
    return bytes / median(seconds) / 1e9;
  };
  const std::string name = "checkpoint";
  return {
      {name, "bytes", bytes, "B", "weights and optimizer state of all ranks"},
      {name, "plain_write", rate(write.plain), "GB/s", "one file per rank, 8 MiB per call, fsync"},
      {name, "write", rate(write.checkpoint), "GB/s", "with checksums, fsync, index and rename"},
      {name, "write_ratio", write.ratio(), "1", "write / plain_write of the same round"},
      {name, "write_seconds", median(write.checkpoint), "s", "until the slowest rank is done"},
      {name, "plain_read", rate(read.plain), "GB/s", "own file, 8 MiB per call, not cached"},
      {name, "read", rate(read.checkpoint), "GB/s", "own share, verified, not cached"},
      {name, "read_ratio", read.ratio(), "1", "read / plain_read of the same round"},
      {name, "read_seconds", median(read.checkpoint), "s", "until the slowest rank is done"},
  };
}

}  // namespace trireme::commands
