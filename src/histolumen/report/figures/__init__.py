"""The paper's figures as vector PDF and PNG, in colours that everybody can tell apart."""
