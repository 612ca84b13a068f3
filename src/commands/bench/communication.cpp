// trireme bench, section communication: collectives and transfers of 4 KiB to 64 MiB in the world
// and along each axis of the grid. The seconds of each operation are fitted to alpha + beta n for
// messages of n bytes.
#include <trireme/commands/bench/bench.hpp>
#include <trireme/commands/bench/table.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/layout/split.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

namespace trireme::commands {
namespace {

constexpr Bytes smallest = 4 << 10;
constexpr Bytes largest = 64 << 20;
constexpr int message_growth = 4;
constexpr Bytes few_bytes = 1 << 20;  // smaller messages need more rounds, because of noise

enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send_receive
};

constexpr std::array<std::pair<Operation, const char*>, 5> operations{{
    {Operation::all_reduce, "all_reduce"},
    {Operation::reduce_scatter, "reduce_scatter"},
    {Operation::all_gather, "all_gather"},
    {Operation::broadcast, "broadcast"},
    {Operation::send_receive, "send_receive"},
}};

constexpr bool in_machine_files(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::send_receive;
}

/// Bytes that the best algorithm moves over each rank's link, divided by the message's bytes: the
/// factor of the "bus bandwidth" in nccl-tests (doc/PERFORMANCE.md there).
double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * others;
    case Operation::reduce_scatter:
    case Operation::all_gather:
      return others;
    case Operation::broadcast:
    case Operation::send_receive:
      return 1;
  }
  return 1;
}

struct Point {
  Bytes bytes;
  Seconds seconds;
};

/// Fits the seconds of an n-byte message to alpha + beta n, with the least sum of squared relative
/// errors. A negative alpha or beta is noise: alpha is then 0, and only beta is fitted.
BenchLine fit(const std::vector<Point>& points) {
  double s = 0;
  double sx = 0;
  double sxx = 0;
  double sy = 0;
  double sxy = 0;
  for (const Point& p : points) {
    const auto x = static_cast<double>(p.bytes);
    const double weight = 1 / (p.seconds * p.seconds);
    s += weight;
    sx += weight * x;
    sxx += weight * x * x;
    sy += weight * p.seconds;
    sxy += weight * x * p.seconds;
  }
  const BenchLine both{(sy * sxx - sx * sxy) / (s * sxx - sx * sx),
                       (s * sxy - sx * sy) / (s * sxx - sx * sx)};
  return both.alpha > 0 && both.beta > 0 ? both : BenchLine{0, sxy / sxx};
}

/// Arrays of `bytes` and the operations on them, for repeated calls.
class Message {
 public:
  Message(grid::Communicator& communicator, Bytes bytes)
      : communicator_(communicator),
        elements_(bytes / static_cast<Bytes>(sizeof(float))),
        whole_(exec_, elements_),
        other_(exec_, elements_) {
    kernels::fill<float>(exec_, whole_.list(), 0.0);  // zeros, so that repeated sums stay finite
    for (int r = 0; r < communicator.size(); ++r)
      counts_.push_back(layout::split(elements_, communicator.size(), r).extent);
  }

  void operator()(Operation operation) const {
    const View1<float> whole = whole_.list();
    const View1<float> part = other_.list(counts_[static_cast<std::size_t>(communicator_.rank())]);
    switch (operation) {
      case Operation::all_reduce:
        return communicator_.all_reduce<float>(exec_, whole, grid::Reduction::sum, "a measurement");
      case Operation::reduce_scatter:
        return communicator_.reduce_scatter<float>(exec_, part, whole, counts_, "a measurement");
      case Operation::all_gather:
        return communicator_.all_gather<float>(exec_, whole, part, counts_, "a measurement");
      case Operation::broadcast:
        return communicator_.broadcast<float>(exec_, whole, 0, "a measurement");
      case Operation::send_receive:
        return shift();
    }
  }

 private:
  /// Every rank sends to the next rank and receives from the previous rank.
  void shift() const {
    const int ranks = communicator_.size();
    const int rank = communicator_.rank();
    communicator_.begin_group();
    grid::Request in =
        communicator_.start_receive<float>(exec_, other_.list(), (rank + ranks - 1) % ranks, 0);
    grid::Request out =
        communicator_.start_send<float>(exec_, whole_.list(), (rank + 1) % ranks, 0);
    communicator_.end_group(exec_);
    communicator_.wait(in, "a measurement");
    communicator_.wait(out, "a measurement");
  }

  grid::Communicator& communicator_;
  Exec exec_;
  std::int64_t elements_;
  BenchArray<float> whole_;
  BenchArray<float> other_;
  std::vector<std::int64_t> counts_;
};

struct Measured {
  std::string name;  ///< name of the communicator
  int ranks;
  std::map<Operation, std::vector<Point>> points;
};

/// Measures all groups of an axis at once, as they communicate in a step.
Measured measure(const BenchSetting& setting, const std::string& name,
                 grid::Communicator& communicator) {
  Measured out{name, communicator.size(), {}};
  for (Bytes bytes = smallest; bytes <= largest; bytes *= message_growth) {
    const Message message(communicator, bytes);
    for (const auto& [operation, of_name] : operations) {
      if (setting.for_machine_file && !in_machine_files(operation)) continue;
      const Operation wanted = operation;
      const BenchTiming timing = time_calls(
          setting, [&] { message(wanted); }, bytes < few_bytes ? machine_rounds : 1);
      out.points[operation].push_back({bytes, timing.seconds});
    }
  }
  return out;
}

void add_rows(BenchRows& rows, const Measured& m) {
  for (const auto& [operation, name] : operations) {
    if (!m.points.contains(operation)) continue;
    const double factor = bus_factor(operation, m.ranks);
    const std::vector<Point>& points = m.points.at(operation);
    const std::string of = text(m.name, ".", name);
    for (const Point& p : points) {
      const std::string size = text(of, ".bytes_", p.bytes);
      rows.push_back({"communication", size + ".seconds", p.seconds, "s",
                      text(m.ranks, " ranks, the slowest of all groups")});
      rows.push_back({"communication", size + ".bus",
                      static_cast<double>(p.bytes) * factor / p.seconds / 1e9, "GB/s",
                      text("bytes / seconds × ", rounded(factor), ", as in nccl-tests")});
    }
    const BenchLine line = fit(points);
    rows.push_back(
        {"communication", of + ".alpha", line.alpha, "s", "seconds = alpha + beta bytes"});
    rows.push_back(
        {"communication", of + ".beta", line.beta, "s/B", "seconds = alpha + beta bytes"});
  }
}

std::string table_of(const Measured& m) {
  std::vector<std::string> heading{text(m.name, ", ", m.ranks, " ranks")};
  for (const Point& p : m.points.at(Operation::all_reduce)) heading.push_back(human_bytes(p.bytes));
  heading.insert(heading.end(), {"alpha", "1 / beta"});
  BenchTable table(heading, BenchTable::Last::number);
  for (const auto& [operation, name] : operations) {
    if (!m.points.contains(operation)) continue;
    const std::vector<Point>& points = m.points.at(operation);
    std::vector<std::string> seconds{name};
    std::vector<std::string> rates{"  bus GB/s"};
    for (const Point& p : points) {
      seconds.push_back(rounded_seconds(p.seconds));
      rates.push_back(
          rounded(static_cast<double>(p.bytes) * bus_factor(operation, m.ranks) / p.seconds / 1e9));
    }
    const BenchLine line = fit(points);
    seconds.insert(seconds.end(),
                   {rounded_seconds(line.alpha), rounded(1 / line.beta / 1e9) + " GB/s"});
    rates.insert(rates.end(), {"", ""});
    table.add(seconds);
    table.add(rates);
  }
  return table.str();
}

}  // namespace

BenchReport bench_communication(const BenchSetting& with_all) {
  BenchSetting setting = with_all;
  setting.processor_time = false;  // waiting for messages counts
  BenchReport report;
  grid::Communicator& world = setting.runtime.world();
  if (world.size() == 1) {
    report.table = "  one rank: nothing to measure";
    return report;
  }
  const Measured of_world = measure(setting, "world", world);
  setting.machine.sums = fit(of_world.points.at(Operation::all_reduce));
  setting.machine.messages = fit(of_world.points.at(Operation::send_receive));
  add_rows(report.rows, of_world);
  std::string notes;
  std::string tables = table_of(of_world);
  for (const layout::AxisTraits& traits : layout::axis_table) {
    const Axis axis = traits.axis;
    grid::Communicator& communicator = setting.session.grid->communicator(axis);
    if (communicator.size() == 1 || setting.for_machine_file) continue;
    const std::string name(name_of(axis));
    if (communicator.size() == world.size()) {  // the same ranks in the same order
      Measured same = of_world;
      same.name = name;
      add_rows(report.rows, same);
      notes += text("\n  ", name, ": the same ranks as world");
      continue;
    }
    const Measured of_axis = measure(setting, name, communicator);
    add_rows(report.rows, of_axis);
    tables += text("\n\n", table_of(of_axis));
  }
  report.table = text(
      "seconds of the slowest rank for n ranks, bytes of the whole array\n"
      "bus = bytes / seconds × f as in nccl-tests; f = 2 (n - 1) / n for all_reduce,\n"
      "(n - 1) / n for reduce_scatter and all_gather, 1 for broadcast and send_receive (to the "
      "next\n"
      "rank and from the previous one)\n"
      "alpha, beta: fit of seconds = alpha + beta bytes\n",
      tables, notes);
  return report;
}

}  // namespace trireme::commands
