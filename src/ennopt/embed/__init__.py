"""Trained ensembles inside other people's optimization models."""

from ennopt.embed.predictor import PredictorConstr, add_predictor_constr

__all__ = ["PredictorConstr", "add_predictor_constr"]
