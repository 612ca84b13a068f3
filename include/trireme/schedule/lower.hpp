#pragma once

#include <trireme/schedule/program.hpp>

namespace trireme::schedule {

struct LowerOptions {
  bool tied = false;  ///< the last stage uses the first one's token table
  Transport transport = Transport::independent_channels;
};

/// Adds to a program of computing instructions what the rest of the machine needs.
///
/// Sends directly behind their producers. Receives, under independent channels, before the
/// computing instruction that precedes their consumer, so that the transfer overlaps one
/// computation. Under ordered groups, both sides of every transfer take the same place in one total
/// order, the order in which the producers end when the program is played in unit costs: no rank
/// can then wait for a later transfer, and transfers that fall between the same two computations of
/// a rank make one group (where a computation of the receiver ends together with the producer, the
/// transfer comes behind it, or it would hold up the group before it). A program for training ends
/// with the reduction of each stage's gradients, of the tied ones, the norm and the update; one for
/// evaluation has transfers only.
///
/// A program that is not valid stays so: validate() says why.
void lower(Program& program, const LowerOptions& options = {});

}  // namespace trireme::schedule
