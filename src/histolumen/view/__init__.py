"""The viewer: a local web server that shows images, slides and predictions in a browser."""
