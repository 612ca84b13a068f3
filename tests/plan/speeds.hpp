#pragma once

#include <trireme/plan/machine.hpp>

namespace trireme::testing {

/// A cluster with round values: nodes of 8 devices with 4 multiprocessors of 1 TFLOP/s each.
inline plan::Machine cluster() {
  plan::Machine m;
  m.name = "cluster";
  m.set_kind(plan::DeviceKind::cuda);
  m.device.memory = Bytes{80} << 30;
  m.device.peak_fp64 = m.device.peak_fp32 = 1e12;
  m.device.peak_tf32 = 2e12;
  m.device.peak_bf16 = m.device.peak_fp16 = 4e12;
  m.device.bandwidth = 1e12;
  m.device.multiprocessors = 4;
  m.device.product_efficiency = 0.5;
  m.device.memory_efficiency = 0.5;
  m.device.attention_efficiency = 0.25;
  m.device.tile_overhead = 64;
  m.device.launch = 1e-6;
  m.node.devices = 8;
  m.node.link_bandwidth = 100e9;
  m.node.link_efficiency = 0.5;
  m.node.link_latency = 1e-6;
  m.network.bandwidth = 200e9;
  m.network.efficiency = 0.5;
  m.network.gradient_efficiency = 0.25;
  m.network.latency = 1e-5;
  return m;
}

}  // namespace trireme::testing
