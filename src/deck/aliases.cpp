// Names in other programs (PyTorch recipes, Megatron-LM, DeepSpeed, transformers, nanoGPT) for keys
// and sections of a deck. Errors about unknown keys and options suggest the corresponding key.
#include <trireme/deck/key_file.hpp>

namespace trireme::deck {

const std::vector<Alias>& deck_aliases() {
  static const std::vector<Alias> all{
      {"run", "training trainer general job"},
      {"run.directory", "output_dir out_dir run_dir log_dir save_dir output_directory output"},
      {"run.steps",
       "max_steps train_steps num_steps total_steps n_steps train_iters max_iters "
       "iterations num_iterations iters"},
      {"run.steps", "epochs num_epochs max_epochs num_train_epochs n_epochs epoch",
       "steps = epochs · tokens of the training file / (batch.global · model.sequence)"},
      {"run.seed", "random_seed rng_seed manual_seed"},
      {"run.time_limit", "walltime max_time exit_duration_in_mins"},
      {"run.log_every", "log_interval logging_steps log_freq print_every log_steps"},
      {"run.evaluate_every",
       "eval_interval eval_steps eval_every val_interval eval_freq val_check_interval"},
      {"run.evaluate_batches", "eval_iters val_steps limit_val_batches eval_batches"},
      {"run.watchdog", "timeout distributed_timeout_minutes ddp_timeout"},
      {"model", "network transformer architecture arch"},
      {"model.family", "model_type model_name model_family"},
      {"model.layers", "n_layer n_layers num_layers num_hidden_layers depth"},
      {"model.hidden", "d_model dim n_embd hidden_size embed_dim embedding_dim model_dim width"},
      {"model.heads", "n_head n_heads num_heads num_attention_heads attention_heads"},
      {"model.key_value_heads",
       "n_kv_heads kv_heads num_kv_heads num_key_value_heads num_query_groups n_kv_head"},
      {"model.head_size", "head_dim kv_channels d_head"},
      {"model.feed_forward", "d_ff ffn_dim intermediate_size ffn_hidden_size n_inner mlp_dim ffn"},
      {"model.sequence",
       "seq_len seq_length sequence_length max_seq_len max_seq_length block_size "
       "context_length n_ctx n_positions max_position_embeddings max_length"},
      {"model.vocabulary", "vocab_size n_vocab vocab padded_vocab_size"},
      {"model.dropout",
       "hidden_dropout attention_dropout hidden_dropout_prob resid_pdrop "
       "attn_pdrop embd_pdrop dropout_prob"},
      {"model.tied_embeddings", "tie_word_embeddings tie_embeddings weight_tying"},
      {"model.norm", "normalization norm_type"},
      {"model.norm_epsilon", "rms_norm_eps layer_norm_eps layernorm_epsilon norm_eps"},
      {"model.head_norm", "qk_norm qk_layernorm"},
      {"model.positions", "position_embedding_type pos_emb"},
      {"model.rope_theta", "rotary_base rope_base"},
      {"model.activation", "hidden_act activation_function act_fn"},
      {"model.biases", "bias use_bias add_bias_linear"},
      {"model.window", "sliding_window window_size"},
      {"model.masked_share", "mlm_probability mask_prob"},
      {"adapter", "lora peft"},
      {"adapter.rank", "lora_rank lora_r lora_dim r"},
      {"adapter.alpha", "lora_alpha"},
      {"adapter.dropout", "lora_dropout"},
      {"adapter.targets", "target_modules lora_target_modules"},
      {"adapter.also_trained", "modules_to_save"},
      {"parallel", "parallelism distributed strategy"},
      {"parallel.tensor",
       "tp tp_size tensor_parallel tensor_parallel_size tensor_parallel_degree "
       "tensor_model_parallel_size model_parallel_size mp"},
      {"parallel.pipeline",
       "pp pp_size pipeline_parallel pipeline_parallel_size pipeline_parallel_degree "
       "pipeline_model_parallel_size"},
      {"parallel.data",
       "dp dp_size data_parallel data_parallel_size data_parallel_degree replicas "
       "data_parallel_replicate_degree"},
      {"parallel.context",
       "cp cp_size context_parallel context_parallel_size context_parallel_degree "
       "sequence_parallel_size ulysses ring_attention"},
      {"parallel.sequence_parallel", "sp use_sequence_parallel"},
      {"parallel.chunks",
       "virtual_pipeline_model_parallel_size vpp virtual_stages num_model_chunks "
       "num_layers_per_virtual_pipeline_stage"},
      {"parallel.schedule", "pipeline_schedule pipeline_parallel_schedule pp_schedule"},
      {"parallel.recompute",
       "activation_checkpointing gradient_checkpointing checkpoint_activations "
       "recompute_granularity recompute_activations activation_checkpoint",
       "\"selective\", \"full\" or \"auto\""},
      {"parallel.shard",
       "zero zero_stage fsdp fsdp2 use_distributed_optimizer "
       "sharding_strategy data_parallel_shard_degree",
       "\"optimizer\" for ZeRO 1, \"gradients\" for ZeRO 2, \"weights\" for ZeRO 3 and FSDP"},
      {"parallel.shard_group", "hsdp hybrid_shard zero_hpz_partition_size"},
      {"parallel.offload", "cpu_offload offload_optimizer cpu_offloading optimizer_cpu_offload",
       "\"optimizer\", \"activations\" or \"both\""},
      {"parallel.bucket_bytes", "bucket_cap_mb ddp_bucket_size reduce_bucket_size",
       "a size with its unit, such as 25MB"},
      {"batch.global", "global_batch_size train_batch_size batch_size gbs total_batch_size"},
      {"batch.micro",
       "micro_batch_size per_device_train_batch_size local_batch_size batch_size mbs "
       "train_micro_batch_size_per_gpu device_batch_size"},
      {"batch.global",
       "gradient_accumulation_steps grad_accum_steps accumulate_grad_batches "
       "gradient_accumulation grad_accumulation_steps",
       "global = micro · replicas · steps of accumulation"},
      {"batch.ramp_start", "rampup_batch_size"},
      {"precision", "amp mixed_precision dtype numerics"},
      {"precision.compute", "dtype torch_dtype mixed_precision params_dtype amp_dtype"},
      {"precision.compute", "bf16 fp16 half fp32 amp bfloat16 float16",
       "\"fp32\", \"bf16\", \"fp16\" or \"fp64\""},
      {"precision.products", "fp8", "\"fp8\", with precision.compute = \"bf16\""},
      {"precision.tf32", "allow_tf32"},
      {"precision.attention",
       "attn_implementation attention_backend flash_attention flash_attn "
       "use_flash_attn"},
      {"precision.loss_scale", "initial_loss_scale initial_scale_power init_scale"},
      {"precision.loss_scale_interval", "loss_scale_window growth_interval"},
      {"optimizer", "optim optimiser scheduler lr_scheduler"},
      {"optimizer.kind", "optim optimizer_name optimizer_type optim_name optimizer"},
      {"optimizer.learning_rate", "lr max_lr peak_lr base_lr rate learningrate"},
      {"optimizer.minimum_learning_rate", "min_lr lr_min eta_min min_learning_rate final_lr"},
      {"optimizer.warmup_steps",
       "warmup warmup_iters lr_warmup_iters lr_warmup_steps num_warmup_steps"},
      {"optimizer.warmup_steps", "warmup_ratio lr_warmup_fraction warmup_fraction",
       "a number of steps, not a fraction of run.steps"},
      {"optimizer.schedule",
       "lr_scheduler_type lr_decay_style lr_schedule scheduler_type decay_type lr_scheduler"},
      {"optimizer.decay_steps", "lr_decay_iters lr_decay_steps t_max"},
      {"optimizer.cooldown_steps", "lr_wsd_decay_iters wsd_decay_steps"},
      {"optimizer.beta1", "adam_beta1"},
      {"optimizer.beta2", "adam_beta2"},
      {"optimizer.beta1", "betas", "two keys, beta1 and beta2"},
      {"optimizer.epsilon", "eps adam_eps adam_epsilon"},
      {"optimizer.weight_decay", "wd decay l2"},
      {"optimizer.clip_norm",
       "grad_clip clip_grad max_grad_norm gradient_clipping gradient_clip_val max_norm clip"},
      {"optimizer.frozen", "freeze frozen_layers freeze_layers"},
      {"local", "diloco local_sgd"},
      {"local.inner_steps", "sync_every local_steps h"},
      {"local.outer_learning_rate", "outer_lr"},
      {"data", "dataset datasets dataloader"},
      {"data.train",
       "data_path train_data train_data_path train_file dataset dataset_path "
       "dataset_name data_dir"},
      {"data.validation",
       "valid_data_path val_data validation_file val_file eval_data validation_data val "
       "eval_dataset"},
      {"data.tokenizer",
       "tokenizer_path tokenizer_name tokenizer_model tokenizer_name_or_path vocab_file"},
      {"data.end_of_document", "eos_token eod eos"},
      {"data.packing", "sample_packing pack packed"},
      {"checkpoint", "checkpointing ckpt saving"},
      {"checkpoint.directory", "ckpt_dir checkpoint_dir save checkpoint_path"},
      {"checkpoint.every",
       "save_steps save_interval save_every ckpt_interval save_freq "
       "checkpoint_interval every_n_train_steps"},
      {"checkpoint.keep", "save_total_limit keep_last keep_latest_k max_to_keep save_top_k"},
      {"checkpoint.asynchronous", "async_save async_mode async"},
      {"checkpoint.restart",
       "resume resume_from_checkpoint load load_checkpoint init_from "
       "resume_from from_checkpoint"},
  };
  return all;
}

}  // namespace trireme::deck
