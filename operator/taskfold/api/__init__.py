"""The custom resources of taskfold.dev/v1alpha1 as data: models, phases, reasons, conditions, and the CRDs
made from them.

Pure: no I/O, no clock. Import its modules, not names from here.
"""
