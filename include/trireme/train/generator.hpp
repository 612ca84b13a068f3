#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace trireme::train {

/// Rule by which the next token is drawn.
struct Sampling {
  double temperature = 1;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;  ///< draw among the k likeliest; 0: among all
  std::uint64_t seed = 1;
  std::int64_t ids = 0;  ///< draw among ids below this, the ids that have a text; 0: among all
  /// Draw among the likeliest of them whose probabilities reach this sum (Holtzman et al. 2019,
  /// arXiv 1904.09751); 1: among all.
  double top_p = 1;
  /// Draw among those of them with at least this share of the largest probability (Nguyen et al.
  /// 2024, arXiv 2407.01082); 0: among all.
  double min_p = 0;
};

/// Index of the drawn token. Random number `position` of the array (seed, sampling, sample), so
/// that a text does not depend on which rank writes it. Error if a logit is infinite or NaN.
std::int32_t draw(const std::vector<double>& logits, const Sampling& sampling, std::uint32_t sample,
                  std::uint64_t position);

/// Continues token sequences with a trained model.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual void load(const checkpoint::Reader& reader) = 0;

  /// Up to `tokens` tokens after `prompt`, which must not be empty. Ends early at `end_token`,
  /// which is not handed over, or when `take` returns false. When a text reaches the model's
  /// sequence length, its newer half stays as context.
  virtual void generate(const std::vector<std::int32_t>& prompt, std::int64_t tokens,
                        std::int32_t end_token, const Sampling& sampling, std::uint32_t sample,
                        const std::function<bool(std::int32_t)>& take) = 0;
};

std::unique_ptr<Generator> make_generator(const deck::Config& config,
                                          const architecture::Architecture& architecture);

}  // namespace trireme::train
