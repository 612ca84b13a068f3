// Best-fit decreasing bin packing, with a list of samples for each amount of free space in tokens.
#include <trireme/data/packed_documents.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::int64_t documents_at_a_time = 1 << 16;
constexpr std::int64_t packed_tokens_limit = std::int64_t{1} << 44;
constexpr std::uint32_t no_piece = 0xFFFFFFFFu;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A set of integers in [0, size), one bit each in words_. The bits of filled_ mark non-zero words.
class NumberSet {
 public:
  explicit NumberSet(std::int64_t size)
      : words_(at(size / 64 + 1)), filled_(at(std::ssize(words_) / 64 + 1)) {}

  void insert(std::int64_t n) {
    words_[at(n / 64)] |= bit(n);
    filled_[at(n / 4096)] |= bit(n / 64);
  }
  void erase(std::int64_t n) {
    if ((words_[at(n / 64)] &= ~bit(n)) == 0) filled_[at(n / 4096)] &= ~bit(n / 64);
  }
  /// The smallest element that is at least n; −1 if there is none.
  std::int64_t from(std::int64_t n) const {
    const std::int64_t word = next(words_, n, n / 64);
    if (word >= 0) return word;
    for (std::int64_t i = (n / 64 + 1) / 64, first = n / 64 + 1; i < std::ssize(filled_);
         ++i, first = i * 64)
      if (const std::int64_t w = next(filled_, first, i); w >= 0) return next(words_, w * 64, w);
    return -1;
  }

 private:
  static std::uint64_t bit(std::int64_t n) { return std::uint64_t{1} << (n % 64); }
  /// The smallest integer of at least n whose bit is set in word i = n / 64; −1 if there is none.
  static std::int64_t next(const std::vector<std::uint64_t>& words, std::int64_t n,
                           std::int64_t i) {
    const std::uint64_t rest = words[at(i)] & (~std::uint64_t{0} << (n % 64));
    return rest == 0 ? -1 : i * 64 + std::countr_zero(rest);
  }

  std::vector<std::uint64_t> words_, filled_;
};

/// The pieces in descending order of length; pieces of equal length in file order.
std::vector<std::uint64_t> by_length(const std::vector<std::uint64_t>& pieces,
                                     std::int64_t sequence, std::uint64_t length_mask) {
  std::vector<std::int64_t> place(at(sequence + 1));  // [i]: next index for a piece of S − i tokens
  const auto list = [&](std::uint64_t piece) {
    return at(sequence - 1) - static_cast<std::size_t>(piece & length_mask);
  };
  for (const std::uint64_t piece : pieces) ++place[list(piece) + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<std::uint64_t> sorted(pieces.size());
  for (const std::uint64_t piece : pieces) sorted[at(place[list(piece)]++)] = piece;
  return sorted;
}

}  // namespace

PackedDocuments::PackedDocuments(const TokenSource& file, std::int64_t sequence)
    : sequence_(sequence), documents_(file.documents()) {
  check_usage(sequence >= 1 && sequence <= longest_sequence,
              "[data] packing = \"documents\" needs ", "[model] sequence of 1 to ",
              longest_sequence, " tokens, not ", sequence);
  check_usage(file.tokens() < packed_tokens_limit, file.path(), " has ", file.tokens(),
              " tokens; [data] packing = \"documents\" takes files of less than ",
              packed_tokens_limit, ", so split it into a blend");
  std::vector<std::uint64_t> sorted;
  {
    const std::vector<std::uint64_t> all = cut_documents(file);
    check_usage(
        !all.empty(), file.path(), ": none of its ", documents_,
        " documents has two tokens, so that [data] packing = \"documents\" finds nothing to "
        "predict; set packing = \"none\"");
    check_usage(all.size() < no_piece, file.path(), " has ", all.size(),
                " pieces of documents; [data] packing = \"documents\" takes less than ", no_piece,
                ", so split it into a blend");
    sorted = by_length(all, sequence, longest_sequence - 1);
  }
  const std::vector<std::uint32_t> sample_of = best_fit(sorted);
  order(sorted, sample_of);
}

std::vector<std::uint64_t> PackedDocuments::cut_documents(const TokenSource& file) {
  std::vector<std::uint64_t> pieces;
  pieces.reserve(at(documents_ + file.tokens() / sequence_));
  std::vector<std::int64_t> offsets(at(documents_at_a_time + 1));
  std::int64_t end = 0;
  for (std::int64_t first = 0; first < documents_; first += documents_at_a_time) {
    const std::int64_t count = std::min(documents_at_a_time, documents_ - first);
    file.read_document_offsets(first, std::span(offsets).first(at(count + 1)));
    for (std::int64_t d = 0; d < count; ++d) {
      std::int64_t begin = offsets[at(d)];
      check(begin == end && offsets[at(d + 1)] >= begin && offsets[at(d + 1)] <= file.tokens(),
            file.path(), ": document ", first + d, " has tokens [", begin, ", ", offsets[at(d + 1)],
            "), expected some from ", end, " on; the file is damaged");
      end = offsets[at(d + 1)];
      if (end - begin < 2) ++dropped_;
      if (end - begin > sequence_ + 1) ++cut_;
      while (begin + 1 < end) {
        const std::int64_t length = std::min(sequence_, end - begin - 1);
        pieces.push_back(static_cast<std::uint64_t>(begin) << length_bits |
                         static_cast<std::uint64_t>(length - 1));
        tokens_ += length;
        begin += length;
      }
    }
  }
  check(end == file.tokens(), file.path(), ": its documents end at token ", end, " of ",
        file.tokens(), "; the file is damaged");
  return pieces;
}

std::vector<std::uint32_t> PackedDocuments::best_fit(const std::vector<std::uint64_t>& sorted) {
  std::vector<std::uint32_t> sample_of(sorted.size());
  // Newest sample with a given free space, in tokens.
  std::vector<std::uint32_t> newest(at(sequence_), no_piece);
  // For each sample, the previous sample with the same free space.
  std::vector<std::uint32_t> before;
  NumberSet rooms(sequence_);
  const auto put = [&](std::uint32_t sample, std::int64_t room) {
    if (room == 0) return;
    before[sample] = std::exchange(newest[at(room)], sample);
    rooms.insert(room);
  };
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto length = static_cast<std::int64_t>(sorted[i] & (longest_sequence - 1)) + 1;
    const std::int64_t room = length == sequence_ ? -1 : rooms.from(length);
    std::uint32_t sample = 0;
    if (room < 0) {
      sample = count_++;
      before.push_back(no_piece);
      put(sample, sequence_ - length);
    } else {
      sample = std::exchange(newest[at(room)], before[newest[at(room)]]);
      if (newest[at(room)] == no_piece) rooms.erase(room);
      put(sample, room - length);
    }
    sample_of[i] = sample;
  }
  return sample_of;
}

void PackedDocuments::order(const std::vector<std::uint64_t>& sorted,
                            const std::vector<std::uint32_t>& sample_of) {
  // The first piece of a sample in `sorted` is the longest piece of the sample.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> longest;
  longest.reserve(count_);
  for (std::size_t i = 0; longest.size() < count_; ++i)
    if (sample_of[i] == longest.size()) longest.emplace_back(sorted[i], sample_of[i]);
  std::ranges::sort(longest);
  std::vector<std::uint32_t> number(count_);
  for (std::size_t n = 0; n < longest.size(); ++n)
    number[longest[n].second] = static_cast<std::uint32_t>(n);
  longest = {};
  begins_.assign(std::size_t{count_} + 1, 0);
  for (const std::uint32_t sample : sample_of) ++begins_[number[sample] + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<std::uint32_t> next(begins_.begin(), begins_.end() - 1);
  pieces_.resize(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) pieces_[next[number[sample_of[i]]]++] = sorted[i];
}

std::string PackedDocuments::description() const {
  const double share = static_cast<double>(cut_) / static_cast<double>(documents_);
  return text(with_commas(documents_), documents_ == 1 ? " document in " : " documents in ",
              with_commas(samples()), samples() == 1 ? " sample, " : " samples, ",
              fixed(100 * padding(), 2), " % padding, ", fixed(100 * share, 2),
              " % of the documents cut",
              dropped_ > 0 ? text(", ", with_commas(dropped_), " of one token left out") : "");
}

}  // namespace trireme::data
