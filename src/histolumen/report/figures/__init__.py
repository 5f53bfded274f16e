"""The paper's figures as vector PDF and PNG, in a colour-blind-safe palette."""
