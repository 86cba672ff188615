"""The rules of a study of a few steps."""

TINY = """
[base]
steps = 4
dim = 8
model_args = { widths = [2, 4, 4, 4] }
data_args = { train_classes = 40, per_class = 4, val_per_class = 2, test_per_class = 2 }
[ranges]
lr = ["log", 1e-3, 1e-1]
loss_lr_factor = ["log", 1.0, 100.0]
[choices.batch]
"4 x 3" = { sampler = "pk", sampler_args = { classes = 4, per_class = 3 } }
"uniform" = { sampler = "uniform", sampler_args = { size = 12 } }
[tuning]
candidates = 3
short_steps = 2
steps = 3
finalists = 2
rounds = 2
extra = 2
edge = 0.05
reach = 0.25
[[searches]]
fields.seed = 1
fields.data_args = { part = "develop", class_split = 1, val_classes = 20, test_classes = 0 }
[[searches]]
fields.seed = 2
fields.data_args = { part = "develop", class_split = 2, val_classes = 20, test_classes = 0 }
[repetitions]
count = 4
numbered = ["seed", "data_args.class_split"]
overlap = 0.0
fields = { data_args = { part = "evaluate", test_classes = 20, val_classes = 0 } }
"""
