// A rank's rows and columns of tensors.
#include <trireme/architecture/extents.hpp>

#include <trireme/architecture/rank_sizes.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::architecture {
namespace {

layout::Slice part_of(const Size& size, const RankSizes& n) {
  switch (size.divide) {
    case Divide::none:
      return {0, size.all};
    case Divide::evenly:
      return layout::split(size.all, n.tensor_ranks, n.tensor_rank);
    case Divide::groups:
      return layout::split_groups(size.all, size.group, n.tensor_ranks, n.tensor_rank);
    case Divide::experts:
      return layout::split(size.all, n.expert_ranks * n.tensor_ranks,
                           n.expert_rank * n.tensor_ranks + n.tensor_rank);
    case Divide::replicas:
      return layout::split(size.all, n.expert_ranks, n.expert_rank);
    case Divide::vocabulary:
      return n.vocabulary_part;
    case Divide::ranks:
      return {0, size.all * n.tensor_ranks};
  }
  return {};
}

/// The most tokens of all replicas that divide the experts. Context ranks may have one token of a
/// sample more than this rank.
std::int64_t received_tokens(const RankSizes& n) {
  return n.expert_ranks == 1 ? n.tokens : n.micro * n.longest * n.expert_ranks;
}

/// The most choices of this rank's experts, if an expert processes at most `rows.limit` tokens of a
/// sample.
std::int64_t limited(std::int64_t choices, const Rows& rows, const RankSizes& n) {
  if (rows.limit == 0) return choices;
  return std::min(choices, held(rows.experts, n) * rows.limit * n.micro * n.expert_batches);
}

}  // namespace

std::int64_t first_of(const Size& size, const RankSizes& n) {
  return part_of(size, n).offset;
}
std::int64_t held(const Size& size, const RankSizes& n) {
  return part_of(size, n).extent;
}

std::int64_t columns_of(const Columns::Part& part, const RankSizes& n) {
  return part.size.all == 0 ? 0 : part.unit * held(part.size, n);
}

std::int64_t columns_of(const Columns& columns, const RankSizes& n) {
  std::int64_t sum = 0;
  for (const Columns::Part& part : columns.parts) sum += columns_of(part, n);
  return sum;
}

std::int64_t all_columns_of(const Columns& columns) {
  std::int64_t sum = 0;
  for (const Columns::Part& part : columns.parts) sum += part.unit * part.size.all;
  return sum;
}

std::int64_t rows_of(const Rows& rows, const RankSizes& n) {
  switch (rows.kind) {
    case Rows::tokens:
      return n.tokens;
    case Rows::own:
      return n.rows;
    case Rows::targets:
      return n.targets;
    case Rows::pairs:
      return n.pairs;
    case Rows::head_rows:
      return n.head_rows;
    case Rows::logit_block:
      return n.logit_block;
    case Rows::samples:
      return n.micro;
    case Rows::received:
      return n.expert_ranks == 1 ? n.tokens
                                 : std::max(n.tokens, limited(received_tokens(n), rows, n));
    case Rows::sent:
      return n.expert_ranks == 1 ? 0 : n.tokens * std::min(rows.active, n.expert_ranks);
    case Rows::exchanged:
      return n.expert_ranks == 1 ? 0 : n.tokens;
    case Rows::received_copies:
      return n.expert_ranks == 1 ? 0 : received_tokens(n);
    case Rows::copy_bounds:
      return n.expert_ranks == 1 ? 0 : 2 * (n.expert_ranks + 1);
    case Rows::routed:
      return limited(received_tokens(n) * std::min(rows.active, held(rows.experts, n)), rows, n);
    case Rows::round: {
      Rows all = rows;
      all.kind = Rows::routed;
      const double some = std::ceil(rows.of_mean * static_cast<double>(mean_rows_of(all, n)));
      const std::int64_t most = rows_of(all, n);
      return some < static_cast<double>(most)
                 ? std::max(std::int64_t{1}, static_cast<std::int64_t>(some))
                 : most;
    }
    case Rows::bounds:
      return held(rows.experts, n) + 1;
    case Rows::chunks:
      return n.micro * (n.context_ranks > 1 ? 2 * n.context_ranks : 1);
    case Rows::source_tokens:
      return n.source.tokens;
    case Rows::source_own:
      return n.source.rows;
    case Rows::projected:
      return n.projected;
    case Rows::pixel_words:
      return n.micro * n.pixel_words;
    case Rows::buckets:
      return n.buckets;
    case Rows::none:
      return 0;
  }
  return 0;
}

std::int64_t all_rows_of(const Rows& rows, const RankSizes& n) {
  if (rows == Rows::own || rows == Rows::received) return n.tokens;
  if (rows == Rows::source_own) return n.source.tokens;
  if (rows == Rows::logit_block) return n.targets;
  return rows_of(rows, n);
}

std::int64_t mean_rows_of(const Rows& rows, const RankSizes& n) {
  if (rows == Rows::routed)
    return std::min(rows_of(rows, n), n.tokens * n.expert_ranks * rows.active *
                                          held(rows.experts, n) / rows.experts.all);
  if ((rows == Rows::sent || rows == Rows::received) && n.expert_ranks > 1) {
    // A token is sent to each rank that has one of its experts. With h of E experts per rank, the
    // probability of none is the product of (E − h − i) / (E − i) over the k choices i.
    const auto all = static_cast<double>(rows.experts.all);
    const std::int64_t parts =
        n.expert_ranks * (rows.experts.divide == Divide::experts ? n.tensor_ranks : 1);
    const double here = all / static_cast<double>(parts);
    double none = 1;
    for (std::int64_t i = 0; i < rows.active; ++i)
      none *= std::max(0.0, (all - here - static_cast<double>(i)) / (all - static_cast<double>(i)));
    return std::min(
        rows_of(rows, n),
        static_cast<std::int64_t>(static_cast<double>(n.tokens * n.expert_ranks) * (1 - none)));
  }
  return rows_of(rows, n);
}

}  // namespace trireme::architecture
