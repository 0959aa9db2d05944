"""The one recorder of what a model runs, and the questions that its records answer."""
