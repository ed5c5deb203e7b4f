"""Models trained on features, their evaluation, and reports.

Import the most used names from here. Each is loaded on first use::

    import obygaze_models as om

    data = om.load_dataset("manifests/mine", "stores/xclip.zarr", positives=["S"], negatives=["EN"])
    cross_val_score(om.MLPProbe(), data.X, data.y, groups=data.groups, cv=om.LeaveFilmOut())
    run = om.run_experiment("sure.toml", "runs/sure")
    run.scores()
    om.report(run, "report.html")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
