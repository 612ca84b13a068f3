#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/load.hpp>

#include "model/golden_gradients.hpp"
#include "model/vision_batch.hpp"
#include "support/training.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

/// Models that see images, which Hugging Face transformers has written, against what its classes
/// make of them: tests/golden/llava_hugging_face/make.py and gemma3_images_hugging_face/make.py.
namespace trireme::train {
namespace {

using namespace trireme::testing;
using namespace trireme::model;

class ImportedLlava : public ::testing::TestWithParam<const char*> {
 protected:
  ImportedLlava() {
    const std::string folder = golden_file(GetParam());
    const std::string config = folder + "/config.json";
    model_ = hugging_face::parse_config(io::read_text_file(config), config).model;
    model_.sequence = image_sequence;
    model_.vision.images = 2;
    hugging_face::import_weights(hugging_face::TensorFolder(folder), model_, DType::fp64,
                                 folder_.path().string(), {0, 0, ""});
  }

  TemporaryFolder folder_;
  deck::ModelConfig model_;
  GoldenGradients golden_{GetParam(), image_stride};
};
INSTANTIATE_TEST_SUITE_P(Models, ImportedLlava,
                         ::testing::Values("llava_hugging_face/clip", "llava_hugging_face/siglip",
                                           "gemma3_images_hugging_face/tied",
                                           "gemma3_images_hugging_face/untied"),
                         [](const auto& model) {
                           const std::string name = model.param;
                           return name.substr(name.find('/') + 1);
                         });

TEST_P(ImportedLlava, LossAndGradientsMatchTransformers) {
  const auto architecture = architecture::describe(model_);
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  const kernels::Handle handle;
  load_weights(handle, checkpoint::Reader(folder_.file("step_00000000")), architecture, parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, true, false});
  set_vision_batch(stage, model_.vision);
  const MicroContext micro = vision_context();
  stage.zero_loss(handle);
  stage.forward(handle, 0, micro);
  stage.backward(handle, 0, micro, [](std::int64_t) {});
  EXPECT_NEAR(value_of(stage.loss()) * micro.token_weight, golden_.losses.front(),
              1e-10 * golden_.losses.front());
  golden_.expect_gradients(architecture, parameters);
}

/// Under mpiexec, with tensor and with pipeline ranks: the loss and the norm of the gradient of a
/// step on a token file.
TEST_P(ImportedLlava, StepsOnRanksMatchTransformers) {
  const data::TokenFile file(write_golden_documents(folder_, model_.vision));
  double squares = 0;
  for (const auto& [name, sums] : golden_.sums) squares += sums[2];
  const std::int64_t ranks = runtime().ranks();
  for (const bool tensor : {true, false}) {
    SCOPED_TRACE(tensor ? "tensor" : "pipeline");
    auto config = small_config(image_samples, 1, ranks,
                               {text(tensor ? "parallel.tensor=" : "parallel.pipeline=", ranks),
                                "model.dropout=0", "model.family=llama"});
    config.model = model_;
    Rig rig(config, file);
    rig.engine->load(checkpoint::Reader(folder_.file("step_00000000")));
    const Trace found = rig.run(1, 1);
    EXPECT_NEAR(found.losses.front(), golden_.losses.front(), 1e-10 * golden_.losses.front());
    EXPECT_NEAR(found.norms.front(), std::sqrt(squares), 1e-10 * std::sqrt(squares));
  }
}

}  // namespace
}  // namespace trireme::train
