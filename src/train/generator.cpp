// Sampling of tokens, and generation with a cache of keys and values on the ranks of a replica.
#include <trireme/train/generator.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/precision.hpp>
#include <trireme/train/text_group.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

namespace trireme::train {

std::int32_t draw(const std::vector<double>& logits, const Sampling& sampling, std::uint32_t sample,
                  std::uint64_t position) {
  const auto bad = std::ranges::find_if(logits, [](double x) { return !std::isfinite(x); });
  if (bad != logits.end())
    throw LogitError(text("the logit of token ", bad - logits.begin(), " after ", position,
                          " generated tokens is ", *bad,
                          ", not finite: the checkpoint's weights are "
                          "damaged or have diverged; generate from an earlier checkpoint"));
  std::size_t ids = logits.size();
  if (sampling.ids > 0) ids = std::min(ids, static_cast<std::size_t>(sampling.ids));
  std::vector<std::int32_t> order(ids);
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)];
    const double y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::size_t keep = order.size();
  if (sampling.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(sampling.top_k));
  if (sampling.temperature == 0) keep = 1;
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
                    likelier);
  if (keep == 1) return order[0];

  std::vector<double> cumulative;
  double sum = 0;
  std::size_t likely = 0;
  for (std::size_t i = 0; i < keep; ++i) {
    const double above =
        logits[static_cast<std::size_t>(order[i])] - logits[static_cast<std::size_t>(order[0])];
    const double weight = std::exp(above / sampling.temperature);  // 1 for the most likely token
    sum += weight;
    cumulative.push_back(sum);
    if (weight >= sampling.min_p) likely = i + 1;
  }
  if (sampling.top_p < 1) {
    const auto last = std::ranges::lower_bound(cumulative, sampling.top_p * sum);
    keep = std::min(keep, static_cast<std::size_t>(last - cumulative.begin()) + 1);
  }
  keep = std::min(keep, likely);
  cumulative.resize(keep);
  sum = cumulative.back();
  const RandomKey key{sampling.seed, Purpose::sampling, sample, 0};
  const double u = uniform_from_word(philox(key, position / 4).w[position % 4]) * sum;
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin();
  return order[std::min(static_cast<std::size_t>(at), keep - 1)];
}

namespace {

/// A group of texts, and the messages with the tokens drawn after its last pass.
struct Group {
  TextGroup texts;
  std::vector<std::int32_t> drawn;  ///< tokens by row; negative: a logit is not finite
  std::vector<grid::Request> sends;
};

template <class P>
class TypedGenerator final : public Generator {
 public:
  using T = typename P::Compute;
  using Logit = Accumulate<T>;

  TypedGenerator(const deck::Config& config, const architecture::Architecture& architecture,
                 grid::Grid& grid, const GeneratorSizes& sizes)
      : vocabulary_(config.model.vocabulary),
        tokens_(sizes.tokens),
        // A text of a decoder with an encoder begins with one token. Relative positions have no
        // limit.
        sequence_(config.model.encoder.present() ? tokens_ : config.model.sequence),
        source_sequence_(config.model.encoder.sequence),
        start_token_(config.model.encoder.present()
                         ? static_cast<std::int32_t>(deck::span_ids(config).start)
                         : -1),
        groups_(std::min(config.parallel.pipeline, sizes.texts)),
        places_((sizes.texts + groups_ - 1) / groups_),
        handle_(kernel_choice(config.precision)),
        architecture_(architecture),
        tensor_(grid.communicator(Axis::tensor)),
        pipeline_(grid.communicator(Axis::pipeline)),
        parameters_(architecture,
                    architecture::make_shard(architecture, config.parallel, pipeline_.rank(),
                                             tensor_.rank()),
                    false),
        decoder_(architecture, parameters_, tensor_, {groups_ * places_, places_, sequence_}) {
    handle_.prepare_products(dtype_of<T>);
    if (!decoder_.has_head()) return;
    if (tensor_.size() > 1) gathered_ = Arena("logits of all tensor ranks", gathered_bytes());
    if (tensor_.size() > 1) all_logits_ = gathered_.take<Logit>(places_ * vocabulary_);
  }

  void load(const checkpoint::Reader& reader) override {
    load_weights(handle_, reader, architecture_, parameters_);
  }

  void generate(Continuations& texts, std::int32_t end_token, const Sampling& sampling) override {
    std::vector<Group> groups;
    for (std::int64_t g = 0; g < groups_; ++g)
      groups.push_back(
          {TextGroup(static_cast<std::int32_t>(g * places_), places_, sequence_, source_sequence_,
                     model::rows_of_wide_pass(architecture_.model), whole_images()),
           {},
           {}});
    std::size_t next = 0;
    for (bool any = true; any;) {
      any = false;
      for (Group& group : groups) {
        receive_tokens(group);
        if (std::ranges::any_of(group.drawn, [](std::int32_t token) { return token < 0; }))
          return give_up(groups, group);
        take_tokens(group, texts, end_token);
        for (; next < texts.count() && group.texts.has_room(); ++next) {
          std::vector<std::int32_t> tokens = texts.begin(next);
          if (source_sequence_ > 0)
            group.texts.begin(next, {start_token_}, std::move(tokens));
          else
            group.texts.begin(next, tokens, {}, texts.images(next));
        }
        if (group.texts.empty()) continue;
        any = true;
        pass(group, texts, sampling);
      }
    }
    finish_messages(groups);
  }

 private:
  /// Whether the tokens of an image see one another.
  bool whole_images() const {
    const deck::VisionConfig& vision = architecture_.model.vision;
    return vision.present() && vision.sees_whole_images();
  }
  Rank last() const { return pipeline_.size() - 1; }
  bool is_last() const { return pipeline_.rank() == last(); }

  /// Receives the tokens that the last stage has drawn after the group's last pass, if any.
  void receive_tokens(Group& group) const {
    const auto& drawing = group.texts.drawing();
    const auto draws = [](const auto& text) { return text.has_value(); };
    if (is_last() || std::ranges::none_of(drawing, draws)) return;
    group.drawn.resize(drawing.size());
    grid::Request request =
        pipeline_.start_receive(std::as_writable_bytes(std::span(group.drawn)), last(), 0);
    pipeline_.wait(request, "drawn tokens");
  }

  /// Continues the group's texts with the drawn tokens, or ends them.
  void take_tokens(Group& group, Continuations& texts, std::int32_t end_token) const {
    const auto drawing = group.texts.drawing();
    for (std::size_t row = 0; row < drawing.size(); ++row) {
      if (!drawing[row]) continue;
      const std::int32_t token = group.drawn[row];
      const bool more = token != end_token && texts.take(*drawing[row], token) &&
                        group.texts.drawn(row) + 1 < tokens_;
      group.texts.append(row, token, more);
      if (!more) texts.end(*drawing[row]);
    }
  }

  /// Runs this rank's part of the group's next pass.
  void pass(Group& group, const Continuations& texts, const Sampling& sampling) {
    const TextGroup::Pass next = group.texts.next();
    const View1<T> x = decoder_.message(next.width);
    pipeline_.wait(send_, "hidden states, generation");  // the previous pass may send from x
    if (pipeline_.rank() > 0) {
      pipeline_.begin_group();
      grid::Request request = pipeline_.start_receive<T>(handle_, x, pipeline_.rank() - 1, 1);
      pipeline_.end_group(handle_);
      pipeline_.wait(request, "hidden states, generation");
    }
    if (next.pixels.empty())
      decoder_.run(handle_, next.rows, next.width, next.with_logits);
    else
      decoder_.see(handle_, next.place, next.pixels);
    if (!is_last()) {
      pipeline_.begin_group();
      send_ = pipeline_.start_send<T>(handle_, x, pipeline_.rank() + 1, 1);
      pipeline_.end_group(handle_);
    } else if (next.with_logits) {
      draw_tokens(group, texts, sampling);
    }
  }

  /// Completes all messages in flight, and throws the LogitError on ranks with logits.
  void give_up(std::vector<Group>& groups, const Group& wrong) {
    for (Group& group : groups)
      if (&group != &wrong) receive_tokens(group);
    finish_messages(groups);
    if (error_) std::rethrow_exception(error_);
  }

  void finish_messages(std::vector<Group>& groups) {
    for (Group& group : groups) wait_for_sends(group);
    pipeline_.wait(send_, "hidden states, generation");
  }

  /// On the last stage, draws the tokens and sends them to the other stages.
  void draw_tokens(Group& group, const Continuations& texts, const Sampling& sampling) {
    wait_for_sends(group);
    const std::vector<Logit> logits = all_logits();
    const auto& drawing = group.texts.drawing();
    group.drawn.assign(drawing.size(), 0);
    try {
      for (std::size_t row = 0; row < drawing.size(); ++row)
        if (drawing[row])
          group.drawn[row] =
              draw(row_of_logits(logits, static_cast<std::int64_t>(row)), sampling,
                   texts.sample(*drawing[row]), static_cast<std::uint64_t>(group.texts.drawn(row)));
    } catch (const LogitError&) {
      error_ = std::current_exception();
      std::ranges::fill(group.drawn, -1);
    }
    for (Rank rank = 0; rank < last(); ++rank)
      group.sends.push_back(pipeline_.start_send(std::as_bytes(std::span(group.drawn)), rank, 0));
  }

  void wait_for_sends(Group& group) const {
    for (grid::Request& request : group.sends) pipeline_.wait(request, "drawn tokens");
    group.sends.clear();
  }

  layout::Slice ids_of(int rank) const { return layout::split(vocabulary_, tensor_.size(), rank); }
  Bytes gathered_bytes() const {
    Arena plan;
    plan.take<Logit>(places_ * vocabulary_);
    return plan.used();
  }

  /// Host copy of the parts [rows, V of the rank] of all tensor ranks, in rank order. Collective
  /// among the tensor ranks.
  std::vector<Logit> all_logits() {
    View1<Logit> all = flat(decoder_.logits());
    if (tensor_.size() > 1) {
      std::vector<std::int64_t> counts;
      for (int rank = 0; rank < tensor_.size(); ++rank)
        counts.push_back(places_ * ids_of(rank).extent);
      tensor_.all_gather<Logit>(handle_, all_logits_, all, counts, "logits, generation");
      all = all_logits_;
    }
    std::vector<Logit> values(all.size());
    copy_to_host<Logit>(handle_, values, all, "train/generator reads the logits");
    return values;
  }

  std::vector<double> row_of_logits(const std::vector<Logit>& all, std::int64_t row) const {
    std::vector<double> logits;
    logits.reserve(static_cast<std::size_t>(vocabulary_));
    for (int rank = 0; rank < tensor_.size(); ++rank) {
      const layout::Slice ids = ids_of(rank);
      const auto begin = all.begin() + places_ * ids.offset + row * ids.extent;
      logits.insert(logits.end(), begin, begin + ids.extent);
    }
    return logits;
  }

  std::int64_t vocabulary_;
  std::int64_t tokens_;           ///< largest number of tokens generated for a text
  std::int64_t sequence_;         ///< tokens of a text in the cache
  std::int64_t source_sequence_;  ///< tokens of a source; 0 without an encoder
  std::int32_t start_token_;      ///< first token of a text with a source
  std::int64_t groups_;           ///< number of groups of texts, at most one for each pipeline rank
  std::int64_t places_;           ///< largest number of texts in a group
  kernels::Handle handle_;
  const architecture::Architecture& architecture_;
  grid::Communicator& tensor_;
  grid::Communicator& pipeline_;
  model::Parameters<P> parameters_;
  model::Decoder<P> decoder_;
  Arena gathered_;
  View1<Logit> all_logits_;  // [rows · V] gathered logits, if there are several tensor ranks
  grid::Request send_;
  std::exception_ptr error_;  ///< LogitError of this rank
};

}  // namespace

std::unique_ptr<Generator> make_generator(const deck::Config& config,
                                          const architecture::Architecture& architecture,
                                          grid::Grid& grid, const GeneratorSizes& sizes) {
  return with_precision(config.precision.compute, [&]<class P>(P) -> std::unique_ptr<Generator> {
    return std::make_unique<TypedGenerator<P>>(config, architecture, grid, sizes);
  });
}

}  // namespace trireme::train
