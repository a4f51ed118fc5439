"""From cases to scores: plan what is unique, encode each thing once, keep it, compare in float32."""
