// First-fit packing of pairs in file order, and the fields of a sample.
#include <trireme/data/packed_pairs.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/data/corrupted_spans.hpp>
#include <trireme/data/samples.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace trireme::data {
namespace {

constexpr std::int64_t documents_at_a_time = 1 << 16;
constexpr std::int64_t documents_limit = 0xFFFFFFFF;

constexpr const char* remedy =
    " is no pair of a source and a target; tokenize JSON lines with \"source\" and \"target\"";

struct Room {
  std::uint32_t sample = 0;
  std::int64_t source = 0, target = 0;  ///< free tokens
};

}  // namespace

PackedPairs::PackedPairs(const TokenSource& file, std::int64_t source, std::int64_t target,
                         Packing packing)
    : file_(file), source_(source), target_(target) {
  check_usage(source >= 1 && target >= 1, "sources of ", source, " and targets of ", target,
              " tokens, expected at least 1");
  const std::int64_t documents = file.documents();
  check_usage(documents < documents_limit, file.path(), " has ", documents,
              " documents, expected less than ", documents_limit, "; split it into a blend");
  read_pair(0);
  std::vector<std::uint32_t> sample_of(static_cast<std::size_t>(documents));
  std::uint32_t samples = 0;
  std::vector<Room> rooms;
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(documents_at_a_time + 1));
  for (std::int64_t d = 0; d < documents; ++d) {
    const std::int64_t i = d % documents_at_a_time;
    if (i == 0)
      file.read_document_offsets(d, std::span(offsets).first(static_cast<std::size_t>(
                                        std::min(documents_at_a_time, documents - d) + 1)));
    const std::int64_t first = offsets[static_cast<std::size_t>(i)];
    const std::int64_t length = offsets[static_cast<std::size_t>(i + 1)] - first;
    const std::int64_t counted = file.counted(first, length);
    check_usage(counted > 0 && counted < length, file.path(), ": document ", d, remedy);
    const std::int64_t of_source = std::min(length - counted, source);
    const std::int64_t of_target = std::min(counted, target);
    cut_ += of_source + of_target < length ? 1 : 0;
    source_tokens_ += of_source;
    target_tokens_ += of_target;
    auto room = std::ranges::find_if(
        rooms, [&](const Room& r) { return r.source >= of_source && r.target >= of_target; });
    if (room == rooms.end()) {
      if (rooms.size() == open) rooms.erase(rooms.begin());
      room = rooms.insert(rooms.end(), {samples++, source, target});
    }
    sample_of[static_cast<std::size_t>(d)] = room->sample;
    room->source -= of_source;
    room->target -= of_target;
    if (room->source == 0 || room->target == 0 || packing == Packing::none) rooms.erase(room);
  }
  begins_.assign(std::size_t{samples} + 1, 0);
  for (const std::uint32_t sample : sample_of) ++begins_[sample + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<std::uint32_t> next(begins_.begin(), begins_.end() - 1);
  pairs_.resize(sample_of.size());
  for (std::size_t d = 0; d < sample_of.size(); ++d)
    pairs_[next[sample_of[d]]++] = static_cast<std::uint32_t>(d);
}

std::span<const std::uint32_t> PackedPairs::pairs(std::int64_t sample) const {
  check(sample >= 0 && sample < samples(), file_.path(), ": sample ", sample, " of ", samples());
  const auto* begin = begins_.data() + sample;
  return std::span(pairs_).subspan(begin[0], begin[1] - begin[0]);
}

std::int64_t PackedPairs::counted(std::int64_t sample) const {
  std::int64_t sum = 0;
  for (const std::uint32_t document : pairs(sample)) {
    std::array<std::int64_t, 2> ends{};
    file_.read_document_offsets(document, ends);
    sum += std::min(file_.counted(ends[0], ends[1] - ends[0]), target_);
  }
  return sum;
}

PackedPairs::Pair PackedPairs::read_pair(std::int64_t document) const {
  std::array<std::int64_t, 2> ends{};
  file_.read_document_offsets(document, ends);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Pair pair;
  pair.target.resize(size(ends[1] - ends[0]));
  file_.read(ends[0], pair.target);
  std::vector<std::int32_t> counted = pair.target;
  file_.mask(ends[0], counted);
  const auto end = std::ranges::find_if(counted, [](std::int32_t id) { return id != uncounted; });
  const auto source = end - counted.begin();
  const bool is_pair = end != counted.begin() && end != counted.end() &&
                       std::find(end, counted.end(), uncounted) == counted.end() &&
                       pair.target[size(source - 1)] == pair.target.back();
  check_usage(is_pair, file_.path(), ": document ", document, remedy);
  const auto middle = pair.target.begin() + source;
  pair.source.assign(pair.target.begin(), middle);
  pair.target.erase(pair.target.begin(), middle);
  pair.source.resize(size(std::min(source_, std::ssize(pair.source))));
  pair.target.resize(size(std::min(target_, std::ssize(pair.target))));
  return pair;
}

void PackedPairs::read(std::int64_t sample, std::int32_t start, const Fields& f) const {
  for (const auto& field : {f.source, f.source_begin, f.source_end})
    check(std::ssize(field) == source_, field.size(), " source tokens, expected ", source_);
  for (const auto& field : {f.inputs, f.targets, f.key_begin, f.key_end})
    check(std::ssize(field) == target_, field.size(), " target tokens, expected ", target_);
  check(f.positions.empty() || f.positions.size() == f.targets.size(), f.positions.size(),
        " positions, expected ", target_, " or none");
  for (const auto& field : {f.source, f.inputs, f.positions}) std::ranges::fill(field, 0);
  std::ranges::fill(f.targets, uncounted);
  std::size_t at_source = 0, at_target = 0;
  for (const std::uint32_t document : pairs(sample)) {
    const auto [source, target] = read_pair(document);
    const auto of_source = [&](auto field) { return field.subspan(at_source, source.size()); };
    const auto of_target = [&](auto field) { return field.subspan(at_target, target.size()); };
    std::ranges::copy(source, of_source(f.source).begin());
    shift_right(target, start, of_target(f.inputs));
    std::ranges::copy(target, of_target(f.targets).begin());
    if (!f.positions.empty()) count_up(of_target(f.positions), std::ssize(target));
    const auto begin = static_cast<std::int32_t>(at_source);
    const auto end = static_cast<std::int32_t>(at_source + source.size());
    std::ranges::fill(of_source(f.source_begin), begin);
    std::ranges::fill(of_source(f.source_end), end);
    std::ranges::fill(of_target(f.key_begin), begin);
    std::ranges::fill(of_target(f.key_end), end);
    at_source += source.size();
    at_target += target.size();
  }
  for (const auto& field : {f.source_begin, f.source_end})
    std::ranges::fill(field.subspan(at_source), static_cast<std::int32_t>(at_source));
  for (const auto& field : {f.key_begin, f.key_end})
    std::ranges::fill(field.subspan(at_target), static_cast<std::int32_t>(at_source));
}

std::string PackedPairs::description() const {
  return text(with_commas(std::ssize(pairs_)), pairs_.size() == 1 ? " pair in " : " pairs in ",
              with_commas(samples()), samples() == 1 ? " sample, " : " samples, ",
              fixed(100 * source_padding(), 2), " % padding of sources and ",
              fixed(100 * target_padding(), 2), " % of targets, ", fixed(100 * share_cut(), 2),
              " % of the pairs cut");
}

}  // namespace trireme::data
