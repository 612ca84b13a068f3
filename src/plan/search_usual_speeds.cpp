// Speeds of typical machines, for layout = "auto" where no machine file is given. They order
// layouts; they do not predict this machine's times.
#include <trireme/plan/search.hpp>

namespace trireme::plan {
namespace {

void fill(double& value, double usual) {
  if (value <= 0) value = usual;
}

}  // namespace

Machine with_usual_speeds(const Machine& machine) {
  Machine m = machine;
  Machine::Device& d = m.device;
  if (m.on_device()) {
    // NVIDIA A100 SXM with 80 GB, data sheet; a DGX A100 with 8 adapters of 200 Gb/s.
    fill(d.peak_fp64, 19.5e12);
    fill(d.peak_fp32, 19.5e12);
    fill(d.peak_tf32, 156e12);
    fill(d.peak_bf16, 312e12);
    fill(d.peak_fp16, 312e12);
    fill(d.bandwidth, 2039e9);
    if (d.multiprocessors <= 1) d.multiprocessors = 108;
    fill(d.launch, 3e-6);
    if (m.node.devices == 0) m.node.devices = 8;
    fill(m.node.link_bandwidth, 300e9);
    fill(m.node.link_latency, 10e-6);
    fill(m.network.bandwidth, 200e9);
    fill(m.network.latency, 20e-6);
    return m;
  }
  // One core of a server: 16 fp32 products and sums per cycle and unit, two units, about 2 GHz; its
  // share of a socket's memory channels. Messages are copies through memory that ranks share.
  fill(d.peak_fp64, 64e9);
  fill(d.peak_fp32, 128e9);
  fill(d.peak_bf16, 64e9);
  fill(d.peak_fp16, 64e9);
  fill(d.bandwidth, 10e9);
  if (m.node.devices == 0) m.node.devices = 64;
  fill(m.node.link_bandwidth, 5e9);
  fill(m.node.link_latency, 5e-6);
  fill(m.network.bandwidth, 12.5e9);  // 100 Gb/s
  fill(m.network.latency, 5e-6);
  return m;
}

}  // namespace trireme::plan
