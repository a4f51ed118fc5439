"""Training with hard positives and hard negatives: recipes, losses, data, the loop."""
