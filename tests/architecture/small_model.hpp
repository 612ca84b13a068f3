#pragma once

#include <trireme/deck/families.hpp>

namespace trireme::architecture {

/// A small model of a family. With masked tokens, 3 of 20 tokens are masked.
inline deck::ModelConfig model_of(Family family, SentenceLoss sentence_loss = SentenceLoss::next) {
  deck::ModelConfig m;
  deck::set_family(m, family);
  m.sentence_loss = sentence_loss;
  m.layers = 2;
  m.hidden = 48;
  m.heads = m.key_value_heads = 4;
  m.feed_forward = 96;
  m.sequence = 20;
  m.vocabulary = 100;
  return m;
}

}  // namespace trireme::architecture
